"""Forked kernels: a notebook sees what it would in a kernel of its own, and nothing is left behind."""

import json
import os
import sys

import pytest
from toys import refused

from fltnb import kernels

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only")

SCRIPT = """
import os
from jupyter_client.manager import start_new_kernel
for now in True, False:
    manager, client = start_new_kernel(kernel_name=os.environ["FLTNB_KERNEL"], cwd="/")
    said = []
    client.execute_interactive(
        "import json, os, sys; "
        "print(json.dumps([os.getcwd(), os.environ['SAID'], 'umap' in sys.modules, os.getpid()]))",
        output_hook=lambda message: said.append(message["content"].get("text", "")), timeout=60)
    print("".join(said))
    client.stop_channels()
    manager.shutdown_kernel(now=now)
"""


def test_a_kernel_has_its_folder_and_variables_and_ends_with_its_command(monkeypatch, capfd):
    monkeypatch.setenv("SAID", "this")
    assert kernels.run([sys.executable, "-c", SCRIPT]) == 0
    kernels_said = [json.loads(line) for line in capfd.readouterr().out.split("\n") if line]
    assert [said[:3] for said in kernels_said] == [["/", "this", True]] * 2
    for *_, pid in kernels_said:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_the_status_is_the_command_s():
    assert kernels.run([sys.executable, "-c", "import sys; sys.exit(7)"]) == 7
    refused("Name the command to run", kernels.run, [])
