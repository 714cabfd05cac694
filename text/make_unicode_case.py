#!/usr/bin/python3
"""Prints unicode_case_tables.inc: what str's methods answer for every character.

Runs of characters with the same properties, rules for case mappings of one character to one, and
the mappings to several. Asking str itself, and not a file of properties, gives what templates see.
"""

import sys

# Bit i of a run's properties; unicode_case.h has the same order.
PROPERTIES = [
    str.isalpha,
    str.isdecimal,
    str.isdigit,
    str.isnumeric,
    str.isspace,
    str.isprintable,
    str.islower,
    str.isupper,
    lambda c: c.istitle() and not c.isupper(),
    # A capital sigma becomes final after a cased character, and sees through an ignorable one.
    lambda c: (c + "\u03a3").lower().endswith("\u03c2"),
    lambda c: ("A" + c + "\u03a3").lower().endswith("\u03c2")
    and not (c + "\u03a3").lower().endswith("\u03c2"),
]


def characters():
    return (chr(code) for code in range(sys.maxunicode + 1))


def property_runs():
    previous = None
    for c in characters():
        bits = sum(1 << i for i, has in enumerate(PROPERTIES) if has(c))
        if bits != previous:
            yield "0x%08x," % (ord(c) << 11 | bits)
            previous = bits


def rules(mapping):
    """Rows (first, last, stride, delta): each stride-th one from first to last moves by delta."""
    rows = []
    for c in characters():
        to = mapping(c)
        if len(to) != 1 or to == c:
            continue
        code, delta = ord(c), ord(to) - ord(c)
        if rows and rows[-1][3] == delta:
            first, last, stride, _ = rows[-1]
            if first == last and code - last <= 2:
                rows[-1] = (first, code, code - last, delta)
                continue
            if first != last and code - last == stride:
                rows[-1] = (first, code, stride, delta)
                continue
        rows.append((code, code, 1, delta))
    return ["{0x%x, 0x%x, %d, %d}," % row for row in rows]


def expansions(mapping):
    for c in characters():
        to = [ord(part) for part in mapping(c)]
        if len(to) > 1:
            yield "{0x%x, {%s}}," % (ord(c), ", ".join("0x%x" % part for part in to))


def print_table(head, rows):
    print("%s = {" % head)
    line = "   "
    for row in rows:
        if len(line) + 1 + len(row) > 100:
            print(line)
            line = "   "
        line += " " + row
    print(line)
    print("};")


def main():
    print("// Made by make_unicode_case.py; not edited by hand.")
    print_table("constexpr uint32_t kPropertyRuns[]", property_runs())
    mappings = {
        "Lower": str.lower,
        "Upper": str.upper,
        "Title": str.title,
        "Fold": str.casefold,
    }
    for name, mapping in mappings.items():
        print_table("constexpr CaseRule k%sRules[]" % name, rules(mapping))
        print_table("constexpr CaseExpansion k%sExpansions[]" % name, expansions(mapping))


if __name__ == "__main__":
    main()
