"""A web service around a saved network, where there is no torch: numpy and the standard library.

    python examples/serve.py net.asterism --port 8000
    curl -d '[[[[0.0, …]]]]' localhost:8000

A request is a JSON array of inputs, an answer one of outputs. What does not fit is said, with the
status 400.
"""

from __future__ import annotations

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

from asterism.errors import InputError
from asterism.runtime import Net, load

LARGEST = 1 << 24  # bytes of a request


def make_server(net: Net, port: int) -> ThreadingHTTPServer:
    """A server that is ready to serve, on this machine only."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                self.answer(200, net(self.inputs()).tolist())
            except (InputError, ValueError) as error:
                self.answer(400, {"error": str(error)})

        def inputs(self) -> np.ndarray:
            length = int(self.headers.get("Content-Length", 0))
            if not 0 < length <= LARGEST:
                raise ValueError(f"send 1 to {LARGEST} bytes of JSON")
            inputs = np.asarray(json.loads(self.rfile.read(length)), np.float32)
            if inputs.shape[1:] != tuple(net.input_shape):
                raise ValueError(f"expected (N, {', '.join(map(str, net.input_shape))})")
            return inputs

        def answer(self, status: int, content: object) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="saved with example_inputs")
    parser.add_argument("--port", type=int, default=8000, help="0 for any that is free")
    options = parser.parse_args()
    server = make_server(load(options.file), options.port)
    print(f"serving {options.file} on http://127.0.0.1:{server.server_port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
