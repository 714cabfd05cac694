"""Answers of the real models against onnxruntime with optimisations off."""

import os
import subprocess

import numpy as np

import zoo
from contenders import Cache, ModelRun, RunFailed, onnx_session, report


def real_inputs(name, batch):
    """Inputs a user would send, or None where the package brings none."""
    if name == "magika":
        rows = []
        for path in sorted([__file__, os.__file__, subprocess.__file__, np.__file__] * 2)[:batch]:
            with open(path, "rb") as file:
                data = file.read()
            begin, end = data[:4096].lstrip()[:1024], data[-4096:].rstrip()[-1024:]
            rows.append(
                list(begin) + [256] * (1024 - len(begin)) + [256] * (1024 - len(end)) + list(end)
            )
        return {"bytes": np.array(rows, np.int32)}
    if name == "minilm3":
        # "a man is eating food." and "the girl is carrying a baby." in the BERT vocabulary.
        sentences = [
            [101, 1037, 2158, 2003, 5983, 2833, 1012, 102],
            [101, 1996, 2611, 2003, 4755, 1037, 3336, 1012, 102],
        ]
        ids, mask = np.zeros((batch, 16), np.int64), np.zeros((batch, 16), np.int64)
        for row in range(batch):
            sentence = sentences[row % 2]
            ids[row, : len(sentence)], mask[row, : len(sentence)] = sentence, 1
        return {"input_ids": ids, "attention_mask": mask}
    if name == "ocr-cls":
        # Dark strokes on paper, as a scanned line of text, upright and turned.
        rows = np.ones((batch, 3, 48, 192), np.float32) * 0.9
        for row in range(batch):
            for stroke in range(6, 186, 9):
                rows[row, :, 10 + stroke % 7 : 38 - stroke % 5, stroke : stroke + 3] = -0.8
        rows[1::2] = rows[1::2, :, ::-1, ::-1]
        return {"x": rows}
    return None


def compare(got, want, tolerance=1e-4):
    """Largest error over the allowed one, and whether the top-1 agrees."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return float("inf"), False
    if want.dtype.kind in "iub":
        return (0.0 if np.array_equal(got, want) else float("inf")), True
    allowed = 1e-5 + tolerance * np.max(np.abs(want), initial=0)
    error = float(np.max(np.abs(got.astype(np.float64) - want), initial=0))
    agree = True
    if want.ndim == 2 and want.shape[1] > 1:
        best = np.sort(want, axis=1)
        decided = best[:, -1] - best[:, -2] > allowed
        agree = bool(np.all((np.argmax(got, 1) == np.argmax(want, 1)) | ~decided))
    return error / allowed, agree


def rows_of(stampmill, model, cache):
    """One row for each batch and kind of inputs."""
    session = onnx_session(model.path, optimise=False)
    outputs = [output.name for output in session.get_outputs()]
    for batch in model.batches:
        for kind, feed in (
            ("random", model.inputs(batch)),
            ("real", real_inputs(model.name, batch)),
        ):
            if feed is None:
                continue
            row = {"model": model.name, "batch": batch, "inputs": kind}
            run = ModelRun(stampmill, model.path, feed, cache)
            try:
                run()
            except RunFailed as error:
                yield row | {"error": str(error), "must": False}
                continue
            got, want = run.outputs(outputs), session.run(None, feed)
            results = [compare(g, w, model.tolerance) for g, w in zip(got, want)]
            worst, top = max(r[0] for r in results), all(r[1] for r in results)
            yield row | {"error_of_allowed": worst, "top1": top, "must": worst <= 1 and top}


def accuracy(options):
    cache = Cache()
    models = zoo.models(options.models) + ([] if options.models else zoo.variants())
    return [report(r) for model in models for r in rows_of(options.stampmill, model, cache)]
