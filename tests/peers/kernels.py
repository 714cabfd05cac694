"""Kernels of the product's own compiler against the machine's peak."""

import json
import subprocess

from contenders import report


def gemm(options):
    result = subprocess.run(
        [options.stampmill, "bench", "kernel", "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    rows = []
    for row in json.loads(result.stdout)["rows"]:
        # The bound is for large square products; the other rows are for information.
        name, _, shape = row["kernel"].partition(" ")
        sides = shape.split("x")
        if name == "matmul" and len(set(sides)) == 1:
            row["must"] = row["utilisation"] >= 0.82
        rows.append(report(row))
    return rows
