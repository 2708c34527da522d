"""Kernels of notebooks that start in a tenth of the time: forked from one process that has imported the libraries.

``python -m fltnb kernels COMMAND ...`` runs a command in which a kernel called ``fltnb-forked`` is one of these; it is
named in ``FLTNB_KERNEL``. Eighteen notebooks would else import torch, scikit-learn, UMAP and seaborn eighteen times.
Run as a script, this file is what Jupyter starts: it hands over the connection file and stays until the kernel ends.
"""

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

NAME = "fltnb-forked"
LIBRARIES = ("torch", "pandas", "seaborn", "matplotlib.pyplot", "scipy.stats", "sklearn.cluster")
LIBRARIES += ("sklearn.decomposition", "ipykernel.kernelapp", "fltnb.studies", "fltnb.papers", "fltnb.plots")
LIBRARIES += ("fltnb.training", "fltnb.methods")
INLINE = "module://matplotlib_inline.backend_inline"  # read when matplotlib is imported, before there is a kernel


def run(command: list[str]) -> int:
    """Run a command whose kernels may be forked ones; return its exit status. No command raises FltnbError."""
    from .errors import FltnbError

    if not command:
        raise FltnbError("Name the command to run, for example: python -m fltnb kernels make reproduce.")
    if sys.platform != "linux":  # elsewhere a fork is not safe once libraries have been imported
        return subprocess.run(command, env=os.environ | {"FLTNB_KERNEL": "python3"}).returncode
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as door:
        address, spec = f"{folder}/door", Path(folder, "kernels", NAME)
        door.bind(address)
        door.listen(64)  # kernels that are asked for while the libraries are imported wait here
        spec.mkdir(parents=True)
        start = [sys.executable, "-I", "-S", __file__, address, "-f", "{connection_file}"]
        about = {"argv": start, "display_name": "Python 3, forked", "language": "python"}
        (spec / "kernel.json").write_text(json.dumps(about))
        begin = [sys.executable, "-c", f"from fltnb import kernels; kernels.serve({door.fileno()})"]
        given = os.environ | {"MPLBACKEND": INLINE}
        # in a session of its own, so that Ctrl-C reaches the command alone, which ends its kernels
        server = subprocess.Popen(begin, pass_fds=[door.fileno()], env=given, start_new_session=True)
        known = [folder, *filter(None, [os.environ.get("JUPYTER_PATH")])]
        try:
            given = os.environ | {"JUPYTER_PATH": os.pathsep.join(known), "FLTNB_KERNEL": NAME}
            return subprocess.run(command, env=given).returncode
        finally:
            server.kill()
            server.wait()


def serve(door: int) -> None:
    """Import the libraries, then fork a kernel for everybody who comes to a listening socket."""
    from .relatedness.fcr import umap_class

    umap_class()
    for name in LIBRARIES:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for kernels that have ended
    with socket.socket(fileno=door) as listener:
        while True:
            guest, _ = listener.accept()
            if not os.fork():
                listener.close()
                _kernel(guest)
            guest.close()


def _kernel(guest: socket.socket) -> None:
    """Be the kernel that a guest asked for, in its folder, with its variables and streams, and end with it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    text, streams, *_ = socket.recv_fds(guest, 2**16, 3)
    while not text.endswith(b"\0"):
        text += guest.recv(2**16)
    arguments, folder, variables = json.loads(text[:-1])
    for stream, place in zip(streams, range(3), strict=True):
        os.dup2(stream, place)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    threading.Thread(target=lambda: (guest.recv(1), os._exit(1)), daemon=True).start()  # the guest is gone
    sys.argv = ["ipykernel", *arguments]
    from ipykernel.kernelapp import IPKernelApp

    IPKernelApp.launch_instance(parent_handle=os.getppid())
    os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the kernel's end is what counts
    with socket.socket(socket.AF_UNIX) as host:
        host.connect(sys.argv[1])
        wish = json.dumps([sys.argv[2:], str(Path.cwd()), dict(os.environ)])
        socket.send_fds(host, [wish.encode() + b"\0"], [0, 1, 2])
        host.recv(1)  # until the kernel has ended
