"""Forked kernels: a notebook sees what it would in a kernel of its own, and nothing is left behind."""

import json
import os
import sys

import pytest

from fltnb import kernels

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only")

SCRIPT = """
import os, sys
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name=os.environ["FLTNB_KERNEL"], cwd="/")
said = []
client.execute_interactive(
    "import os, sys; print([os.getcwd(), os.environ['SAID'], 'umap' in sys.modules, os.getpid()])",
    output_hook=lambda message: said.append(message["content"].get("text", "")), timeout=60)
print("".join(said))
client.stop_channels()
manager.shutdown_kernel(now={now})
"""


@pytest.mark.parametrize("now", [True, False])
def test_a_kernel_has_its_folder_and_variables_and_ends_with_its_command(monkeypatch, capfd, now):
    monkeypatch.setenv("SAID", "this")
    assert kernels.run([sys.executable, "-c", SCRIPT.format(now=now)]) == 0
    folder, said, imported, pid = json.loads(capfd.readouterr().out.replace("'", '"').replace("True", "true"))
    assert (folder, said, imported) == ("/", "this", True)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_status_is_the_command_s(capfd):
    assert kernels.run([sys.executable, "-c", "import sys; sys.exit(7)"]) == 7
