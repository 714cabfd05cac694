"""Prints math_tables.h: polynomial coefficients of math.cc, by Chebyshev interpolation (within a
few per cent of minimax for these smooth functions) at 60 digits, and the table of 2^e * 2 / pi
mod 4.

Needs mpmath. Run by hand when a degree changes: python3 math_tables.py > math_tables.h
"""

from mpmath import asin, atan, atanh, chebyfit, cos, erf, erfc, exp, floor, log, mp, mpf, pi, sin
from mpmath import sqrt

mp.dps = 60


def even(function):
    """z -> function(sqrt(z)), with the limit at 0 taken a little beside it."""
    return lambda z: function(sqrt(z if z > mpf(10) ** -24 else mpf(10) ** -24))


def tail(u):
    return mpf(2.5) * u + mpf(3.5)


def erf_exponent(t):
    return -log(erfc(t), 2) / t if t else 2 / sqrt(pi) / log(2)


FITS = [
    # name, function, low, high, f32 terms, f64 terms
    ("Exp", lambda r: (exp(r) - 1 - r) / r**2 if r else mpf(1) / 2, -0.3466, 0.3466, 5, 11),
    ("Log", even(lambda s: (2 * atanh(s) / s - 2) / s**2), 0, 0.02944, 4, 8),
    ("Sin", even(lambda x: (sin(x) / x - 1) / x**2), 0, 0.617, 4, 8),
    ("Cos", even(lambda x: (cos(x) - 1 + x**2 / 2) / x**4), 0, 0.617, 4, 8),
    ("Exp2", lambda r: (mpf(2) ** r - 1) / r if r else log(2), -0.5, 0.5, 6, 0),
    ("Erf", erf_exponent, 0, 4, 11, 0),
    ("ErfSmall", even(lambda x: erf(x) / x), 0, 1, 0, 15),
    # In u = (t - 3.5) / 2.5.
    ("ErfTail", lambda u: -log(erfc(tail(u))) - tail(u) ** 2, -1, 1, 0, 24),
    ("Asin", even(lambda x: (asin(x) / x - 1) / x**2), 0, 0.25, 7, 14),
    ("Atan", even(lambda x: (atan(x) / x - 1) / x**2), 0, 0.1716, 6, 13),
]


# erf in pieces around 0, 1/4, ... 15/4. The first has no constant, so that small results keep their
# digits; the last one rises to 1 at its end, by less than the last place.
ERF_PIECES, ERF_TERMS, ERF_RISE = 16, 6, mpf("6e-8")


def erf_piece(number):
    centre = mpf(number) / 4
    if number == 0:
        slope = lambda r: erf(r) / r if r else 2 / sqrt(pi)
        coefficients, error = fit(slope, 0, mpf(1) / 8, ERF_TERMS - 1)
        return [mpf(0)] + coefficients, error / 8
    rise = ERF_RISE if number == ERF_PIECES - 1 else 0
    return fit(
        lambda r: erf(centre + r) + rise * (4 * r + mpf(1) / 2), -mpf(1) / 8, mpf(1) / 8, ERF_TERMS
    )


def fit(function, low, high, terms):
    coefficients, error = chebyfit(function, [mpf(low), mpf(high)], terms, error=True)
    return list(reversed(coefficients)), error


def rows(values, digits):
    text = [mp.nstr(value, digits, min_fixed=1, max_fixed=0) for value in values]
    lines, line = [], "   "
    for item in text:
        if len(line) + len(item) + 2 > 98:
            lines.append(line)
            line = "   "
        line += " " + item + ","
    return "\n".join(lines + [line])


def reduction_table():
    """Three parts of (2^e * 2/pi) mod 4 for e = 0 .. 104: 28 bits, 28 bits, the rest."""
    parts = []
    for exponent in range(105):
        value = mpf(2) ** exponent * 2 / pi
        value -= 4 * floor(value / 4)
        for bits in (26, 54):
            part = floor(value * mpf(2) ** bits) / mpf(2) ** bits
            parts.append(part)
            value -= part
        parts.append(value)
    return parts


def main():
    print("// Made by math_tables.py: see there.")
    print("#pragma once\n")
    print("namespace stampmill::math {\n")
    for name, function, low, high, terms32, terms64 in FITS:
        for suffix, terms in (("F32", terms32), ("F64", terms64)):
            if terms == 0:
                continue
            coefficients, error = fit(function, low, high, terms)
            print(f"// On [{low}, {high}], error {mp.nstr(error, 2)}.")
            print(f"inline constexpr double k{name}{suffix}[] = {{")
            print(rows(coefficients, 18) + "\n};")
    pieces = [erf_piece(number) for number in range(ERF_PIECES)]
    error = mp.nstr(max(error for _, error in pieces), 2)
    print(f"\n// erf(n / 4 + r), |r| <= 1/8, by power of r and n; error {error}.")
    print(f"inline constexpr double kErfPiecesF32[{ERF_TERMS}][{ERF_PIECES}] = {{")
    for power in range(ERF_TERMS):
        print("    {\n" + rows([c[power] for c, _ in pieces], 18) + "\n    },")
    print("};")
    print("\n// (2^e * 2/pi) mod 4 in three parts, e = 0 .. 104.")
    print("inline constexpr double kTwoOverPi[] = {")
    print(rows(reduction_table(), 18) + "\n};\n")
    print("}  // namespace stampmill::math\n")


if __name__ == "__main__":
    main()
