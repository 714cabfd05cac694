"""llama.cpp's own HTTP server, out of the xllamacpp package.

    llama_server.py MODEL PORT THREADS SLOTS CONTEXT

as llama-server with --parallel SLOTS, a context of SLOTS * CONTEXT and no prompt cache.
"""

import sys
import time

import xllamacpp


def main():
    model, port, threads, slots, context = sys.argv[1], *map(int, sys.argv[2:6])
    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.port = port
    parameters.n_parallel = slots
    parameters.n_ctx = slots * context
    parameters.cont_batching = True
    parameters.cache_prompt = False
    parameters.cache_ram_mib = 0
    parameters.cpuparams.n_threads = threads
    parameters.cpuparams_batch.n_threads = threads
    parameters.n_gpu_layers = 0
    parameters.verbosity = 0
    server = xllamacpp.Server(parameters)
    while server is not None:
        time.sleep(3600)


if __name__ == "__main__":
    main()
