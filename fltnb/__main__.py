"""The command line: ``python -m fltnb`` (what the Makefile calls)."""

import argparse
import logging
import os
import signal
import sys
from collections import Counter

from .errors import FltnbError


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return the exit status: 0 fine, 1 something failed, 2 bad input, 130 interrupted."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    try:
        return options.command(options) or 0
    except (FltnbError, OSError) as error:  # such as a folder that cannot be written
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        logging.disable()  # the event loop's remarks on what was under way would bury the sentence
        print(
            "Stopped: what was computed is kept, and the same command goes on from there.",
            file=sys.stderr,
        )
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m fltnb", description=__doc__.split(":")[0] + " of fltnb."
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    parser.set_defaults(command=None)

    def command(
        function, name: str, text: str, *shared: argparse.ArgumentParser
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text, parents=shared)
        sub.set_defaults(command=function)
        return sub

    profile, fresh, dask, names = (
        argparse.ArgumentParser(add_help=False) for _ in range(4)
    )
    profile.add_argument(
        "--profile", default="demo", help="demo (default), small or paper"
    )
    fresh.add_argument("--fresh", action="store_true", help="ignore stored results")
    dask.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="send the runs to this Dask scheduler (docs/cluster.md)",
    )
    names.add_argument("names", nargs="*", metavar="NAME", help="these notebooks only")
    sub = command(
        _notebook,
        "notebook",
        "Run one notebook and keep its executed copy.",
        profile,
        fresh,
        dask,
    )
    sub.add_argument("name", help="for example 01_scenario1, or 01")

    text = "Show which notebooks are done, stale or failed, and how long they took."
    sub = command(_status, "status", text, profile, names)
    sub.add_argument(
        "--check",
        action="store_true",
        help="exit with 1 unless every notebook shown is done",
    )
    text = (
        "Compute the missing jobs of a notebook, without Jupyter, and merge its ledger."
    )
    sub = command(_compute, "compute", text, profile, fresh, dask)
    sub.add_argument("name", help="for example 01_scenario1, or 01")
    sub.add_argument(
        "--plan",
        action="store_true",
        help="show the missing jobs and their cost, compute nothing",
    )
    sub.add_argument(
        "--budget",
        metavar="TIME",
        help="best value per minute first, stop in time: 150m, 2.5h",
    )
    sub.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="jobs at a time (default: what suits the profile)",
    )

    text = "Say how long the missing jobs of notebooks take, from what like jobs took before."
    command(_cost, "cost", text, profile, fresh, names)
    sub = command(
        _merge,
        "merge",
        "Add the ledgers of another machine's results/ folder to these.",
    )
    sub.add_argument("folder", help="that folder, with a sub-folder per profile")
    command(_counts, "counts", "Print how printed numbers were tested, as CSV.")
    command(
        _report,
        "report",
        "Write docs/report/ and README's tables from the committed results.",
    )
    sub = command(
        _workers,
        "workers",
        "Show the workers of a Dask scheduler, or say why they cannot be used.",
    )
    sub.add_argument("address", help="tcp://host:port")
    command(
        _doctor,
        "doctor",
        "Say what this machine has and lacks: packages, processor, GPU, data.",
    )
    return parser


def _notebook(options: argparse.Namespace) -> int:
    from . import paths, runner, studies

    def announce(log):
        where = log.relative_to(paths.ROOT)
        print(
            f"{name}: started (profile {options.profile}; what it prints goes to {where})",
            flush=True,
        )

    _use_dask(options.dask)
    name = studies.full_name(options.name, runner.names())
    report = runner.run_notebook(name, options.profile, options.fresh, announce)
    if report["status"] == "done":
        print(f"{name}: done in {duration(report['wall_s'])}", flush=True)
        return 0
    where = report["output"].relative_to(paths.ROOT)
    print(
        f"{name}: FAILED after {duration(report['wall_s'])}; see {where}\n    {report['error']}",
        flush=True,
    )
    return 1


def _status(options: argparse.Namespace) -> int:
    from tabulate import tabulate

    from . import runner, studies

    wanted = {studies.full_name(name, runner.names()) for name in options.names}
    rows = [
        row
        for row in runner.status(options.profile)
        if not wanted or row["notebook"] in wanted
    ]
    head, table = ("notebook", "state", "wall time", "finished (UTC)", "note"), []
    for row in rows:
        took = "" if row["wall_s"] is None else duration(row["wall_s"])
        finished = (row["finished"] or "")[:16].replace("T", " ")
        table.append((row["notebook"], row["state"], took, finished, row["note"]))
    print(tabulate(table, head, "plain", disable_numparse=True))
    return int(options.check and any(row["state"] != "done" for row in rows))


def _compute(options: argparse.Namespace) -> None:
    from . import results, studies
    from .results import plan

    if options.fresh:
        os.environ["FLTNB_FRESH"] = "1"  # workers see it too
    _use_dask(options.dask)
    name = studies.full_name(options.name)
    ledger = results.Ledger(options.profile, name)
    jobs = studies.jobs(name, options.profile)
    if not options.plan and options.budget is None:
        done = studies.results(name, options.profile, n_jobs=options.jobs)
        print(
            f"{len(done)} jobs of {name} (profile {options.profile}) are in the ledger."
        )
        return
    budget = None if options.budget is None else 60 * plan.minutes(options.budget)
    planned, every = (
        plan.plan(jobs, ledger, options.fresh),
        len({job.id for job in jobs}),
    )
    total = sum(one.seconds for one in planned)
    print(
        f"{name}, profile {options.profile}: {every - len(planned)} of {every} jobs are there; the other"
    )
    print(
        f"{len(planned)} take about {duration(total)} on two cores (~: guessed, no like job was measured)."
    )
    if options.plan:
        for one in planned:
            print(
                f"  {'' if one.measured else '~'}{duration(one.seconds):>12}  {one.job}"
            )
        return
    count = plan.within(
        planned, budget, ledger.merge, ledgers=[results.Ledger("small", name)]
    )
    print(
        f"{count} of {len(planned)} missing jobs were computed and are in {ledger.path('csv').name}."
    )


def _cost(options: argparse.Namespace) -> None:
    from . import results, runner, studies
    from .results import plan

    asked = [
        studies.full_name(name, sorted({*studies.NOTEBOOKS, *runner.names()}))
        for name in options.names
    ]
    total = Counter()  # a notebook without jobs, such as the report, costs nothing
    for name in [name for name in studies.NOTEBOOKS if not asked or name in asked]:
        jobs = studies.jobs(name, options.profile)
        missing = plan.plan(jobs, results.Ledger(options.profile, name), options.fresh)
        timed = [one.seconds for one in missing if one.measured]
        total.update(
            jobs=len({job.id for job in jobs}),
            missing=len(missing),
            timed=len(timed),
            seconds=sum(timed),
        )
    print(
        f"Profile {options.profile}: {total['missing']} of {total['jobs']} jobs are to be computed;",
        end=" ",
    )
    print(
        f"the {total['timed']} whose like was timed before take about {duration(total['seconds'])} on two cores."
    )


def _merge(options: argparse.Namespace) -> None:
    from .results import ledger

    for line in ledger.merge_folder(options.folder):
        print(line)


def _counts(options: argparse.Namespace) -> None:
    from . import papers

    print(papers.counts().to_csv(index=False), end="")


def _report(options: argparse.Namespace) -> None:
    from . import papers

    papers.report.write()
    print("The report is in docs/report/; `make site` makes web pages of it.")


def _use_dask(address: str | None) -> None:
    """Let this process and the kernels that it starts send their runs to a scheduler, if it answers."""
    from .results import machines

    if address is not None:
        machines.connect(address)
        os.environ["FLTNB_DASK"] = address
    machines.active()


def _workers(options: argparse.Namespace) -> None:
    from .results import machines

    client = machines.connect(options.address)
    about = machines.check(client)
    threads = client.nthreads()
    for worker, there in sorted(about.items()):
        print(
            f"{worker}: {threads.get(worker, 1)} thread(s), {there['hardware']}, code {there['code']}"
        )
    print(f"{len(about)} worker(s) at {options.address}.")


def _doctor(_: argparse.Namespace) -> int:
    from . import doctor

    return doctor.show()


def duration(seconds: float) -> str:
    """Return a wall time as people say it.

    Examples
    --------
    >>> duration(8.25), duration(75), duration(3725)
    ('8.2 s', '1 min 15 s', '1 h 02 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return (
        f"{minutes} min {rest:02d} s"
        if minutes < 60
        else f"{minutes // 60} h {minutes % 60:02d} min"
    )


if __name__ == "__main__":
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # a polite kill, too, ends the kernel and its workers
    sys.exit(main())
