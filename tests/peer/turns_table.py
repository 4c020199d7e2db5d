"""The waits of a voice conversation beside those of llama.cpp, on the same file and machine, in one run.

    pip install 'llama-cpp-python[server]'
    python turns_table.py FILE.gguf [--reprise target/release/reprise] [--threads 2] [-- --more-flags-of-bench-turns]

Starts llama.cpp's server (the one that comes with llama-cpp-python), waits until it answers, and lets
`reprise bench turns --table --peer` play the same conversation against both. Exits as that does; the server is stopped in any
case. With --server URL a server that runs already is the peer, e.g. llama-server, which keeps checkpoints of recurrent
states that the Python server does not.
"""

import argparse
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_until_it_answers(url, process, patience_s):
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if process.poll() is not None:
            sys.exit(f"llama.cpp's server ended with {process.returncode}")
        try:
            with urllib.request.urlopen(f"{url}/v1/models", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    sys.exit("llama.cpp's server does not answer")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--reprise", default="target/release/reprise")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ctx", type=int, default=8192, help="window of the peer, in tokens")
    parser.add_argument("--server", help="a peer that runs already")
    parser.add_argument("--patience", type=float, default=300)
    # Taken apart here: argparse loses what stands behind `--` where flags come before it.
    given = sys.argv[1:]
    split = given.index("--") if "--" in given else len(given)
    more = given[split + 1 :]
    args = parser.parse_args(given[:split])
    process = None
    try:
        url = args.server
        if url is None:
            port = free_port()
            url = f"http://127.0.0.1:{port}"
            command = [sys.executable, "-m", "llama_cpp.server", "--model", args.model, "--host", "127.0.0.1"]
            command += ["--port", str(port), "--n_ctx", str(args.ctx), "--n_threads", str(args.threads)]
            command += ["--n_threads_batch", str(args.threads)]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_until_it_answers(url, process, args.patience)
        command = [args.reprise, "--threads", str(args.threads), "bench", "turns", "--table", "--model", args.model]
        return subprocess.run(command + ["--peer", url] + more).returncode
    finally:
        if process is not None:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
