"""Notebook 02's jobs and the count of who holds what, and the shares of linked pairs that pictures of FCR state."""

import numpy as np
import pytest

from fltnb import studies
from fltnb.results.work import link_shares
from fltnb.studies import scenario2
from fltnb.studies.common import federation


def test_link_shares_by_hand():
    adjacency = np.array([[1, 1, 0, 0], [1, 1, 0, 1], [0, 0, 1, 0], [0, 1, 0, 1]])
    # inside: pairs (0,1) linked, (2,3) not; across: 1 of 4 pairs linked
    assert link_shares(adjacency, np.array([0, 0, 1, 1])) == (0.5, 0.25)
    inside, across = link_shares(np.eye(3), np.arange(3))
    assert np.isnan(inside) and across == 0


def test_every_switch_changes_one_thing():
    jobs = [job for job in studies.jobs("02", "small") if job.kind == "training" and job.seed == 0]
    base = {(job.axes["method"], job.axes["variant"]): job for job in jobs if len(job.axes) == 5}
    alone = [job for job in jobs if len(job.axes) > 5]
    assert len(alone) == 4 + 8 + 1 and len({job.id for job in jobs}) == len(jobs)
    for job in alone:
        (switch,) = [name for name in job.axes if name not in ("dataset", "method", "variant", "model", "seed")]
        other = base[job.axes["method"], job.axes["variant"]].settings
        different = [name for name in other if other[name] != job.settings[name]]
        assert different == [{"momentum": "momentum", "partition": "federation"}.get(switch, "method")]


@pytest.mark.parametrize(("variant", "twice"), [("as_written", False), ("as_run", True)])
def test_neighbouring_clusters_share_images_only_as_run(variant, twice):
    found = scenario2.holdings(federation("digits", variant, seed=0, shared_classes=1))
    counts, clusters = found["arrays"]["label_counts"], found["arrays"]["clusters"]
    assert counts.shape == (25, 10) and len(clusters) == 25
    assert ((counts > 0).sum(axis=1) == 3).all()  # three labels each
    assert (found["numbers"]["held_twice"] > 0) == twice
    if not twice:
        assert found["numbers"]["images"] == counts.sum()
