"""The command line: ``python -m fltnb``, which the Makefile calls.

Each command is a function here that imports what it needs when it runs, so that a
command and its help start quickly. Errors are reported in one sentence, without a
traceback.
"""

import argparse
import logging
import os
import signal
import sys
from time import monotonic
from typing import Any

from .errors import FltnbError

ONE = "number or name, for example 01 or 01_scenario1"
"""How a notebook is named."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : list of str, optional
        By default the arguments of the process.

    Returns
    -------
    int
        The exit status. 0: fine, 1: something failed, 2: bad input, 130: interrupted.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    try:
        status = options.command(options) or 0
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # who reads the output, such as `head`, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (FltnbError, OSError) as error:  # such as a folder that cannot be written
        print(error, file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:  # commands for notebooks need more packages
        print(f"{error}: pip install 'fltnb[notebooks]'.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        # The event loop's messages on pending work would hide the sentence.
        logging.disable()
        kept = "what was computed is kept, and the same command goes on from there"
        print(f"Stopped: {kept}.", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    """Return the parser; the option ``command`` is the function of a command, or None.

    Such a function takes the options and returns an exit status, or None for 0.
    """
    parser = argparse.ArgumentParser(
        "python -m fltnb",
        description="Run notebooks, compute their experiments, compare methods.",
        epilog="python -m fltnb COMMAND --help describes one command.",
    )
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    def command(function, name: str, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=function)
        return sub

    sub = command(
        _notebook,
        "notebook",
        "Run one notebook with papermill; its copy goes to results/PROFILE/notebooks.",
    )
    sub.add_argument("name", help=ONE)
    _add_profile(sub)
    _add_running(sub)

    sub = command(
        _status,
        "status",
        "Show which notebooks ran (done, stale, failed), and how long they took.",
    )
    sub.add_argument("names", nargs="*", metavar="NAME", help="these notebooks only")
    _add_profile(sub)
    sub.add_argument(
        "--check",
        action="store_true",
        help="exit with 1 unless every notebook shown is done",
    )

    sub = command(
        _compute,
        "compute",
        "Compute a notebook's missing experiments without Jupyter, into its ledger.",
    )
    _add_computing(sub)

    sub = command(
        _arena,
        "arena",
        "Compare a method with others on the arena's federations, or verify its card.",
    )
    _add_arena(sub)

    sub = command(
        _merge,
        "merge",
        "Add the ledgers of another machine's results/ folder to those here.",
    )
    sub.add_argument("folder", help="the results/ folder that the other machine wrote")

    command(
        _counts,
        "counts",
        "Print, as CSV, how many of the papers' numbers were tested, and in what "
        "setting.",
    )
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
    sub.add_argument("address", help="of the scheduler: tcp://host:port")
    command(_doctor, "doctor", "Show what this machine has: packages, GPU, data.")
    return parser


def _add_computing(parser: argparse.ArgumentParser) -> None:
    """Add the options for what is computed, how much, and in parallel."""
    parser.add_argument("name", help=f"{ONE}; or the word all")
    parser.add_argument(
        "--profile",
        default="",
        help="parameters of notebooks/profiles/PROFILE (default: the notebook's own); "
        "results of demo are not added to the ledger",
    )
    parser.add_argument(
        "--table", default="", help="only one table of the paper, such as T1"
    )
    parser.add_argument(
        "--plan",
        action="store_true",
        help="show what is missing and how long it takes here; compute nothing",
    )
    parser.add_argument(
        "--budget",
        metavar="TIME",
        help="compute the most useful experiments first and stop in time: 150m, 2.5h",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="experiments in parallel (default: 1; with --budget one at a time)",
    )
    _add_running(parser)


def _add_profile(parser: argparse.ArgumentParser) -> None:
    """Add the option for the profile of the executed notebooks."""
    parser.add_argument("--profile", default="demo", help="demo (default) or paper")


def _add_arena(sub: argparse.ArgumentParser) -> None:
    """Add the options: methods, federations, and the path of the card."""
    sub.add_argument(
        "method",
        nargs="?",
        help="my_method.py:MyMethod; a method of this package, such as FedAvg; or the "
        "word all: every method of this package, for the table in results/arena",
    )
    sub.add_argument("--track", help="only one track, such as told-K")
    sub.add_argument(
        "--budget", metavar="TIME", help="stop in time and continue later: 10m, 2.5h"
    )
    sub.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="runs in parallel (default: 1)"
    )
    sub.add_argument(
        "--out",
        default="card.json",
        metavar="FILE",
        help="where to write the card (default: card.json); its page is beside it",
    )
    sub.add_argument(
        "--tuned",
        action="store_true",
        help="tune hyperparameters: the best of five trials from the search space that "
        "the method's class declares",
    )
    sub.add_argument(
        "--wrong-k",
        action="store_true",
        help="with all: give the methods that need it a wrong number of clusters",
    )
    sub.add_argument(
        "--demo",
        action="store_true",
        help="small federations of scikit-learn's digits, for a quick try",
    )
    sub.add_argument(
        "--verify", metavar="CARD", help="compute a random third of a card's runs again"
    )


def _add_running(parser: argparse.ArgumentParser) -> None:
    """Add the options of all commands that compute."""
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="compute everything again, also stored results",
    )
    parser.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="send the runs to this Dask scheduler (docs/cluster.md)",
    )


def _notebook(options: argparse.Namespace) -> int:
    """Run one notebook, and print where its copy and its log are.

    Returns 1 if it failed.
    """
    from . import paths, runner
    from .notebook.grids import notebook_file

    def announce(log):
        where = log.relative_to(paths.ROOT)
        about = f"profile {options.profile}; what it prints goes to {where}"
        print(f"{name}: started ({about})", flush=True)

    _use_dask(options.dask)
    name = notebook_file(options.name).stem
    report = runner.run_notebook(name, options.profile, options.fresh, announce)
    took = duration(report["wall_s"])
    if report["status"] == "done":
        print(f"{name}: done in {took}", flush=True)
        return 0
    where = report["output"].relative_to(paths.ROOT)
    print(f"{name}: FAILED after {took}; see {where}", flush=True)
    print(f"    {report['error']}", flush=True)
    return 1


def _status(options: argparse.Namespace) -> int:
    """Print the status of all notebooks, or of the named ones.

    Returns 1 if a check is requested and one of them is not done.
    """
    from tabulate import tabulate

    from . import runner
    from .notebook.grids import notebook_file

    wanted = [notebook_file(name).stem for name in options.names]
    table = []
    all_done = True
    for row in runner.status(options.profile):
        name = row["notebook"]
        if wanted and name not in wanted:
            continue
        took = ""
        if row["wall_s"] is not None:
            took = duration(row["wall_s"])
        finished = row["finished"] or ""
        minute = finished[:16].replace("T", " ")
        table.append((name, row["state"], took, minute, row["note"]))
        all_done = all_done and row["state"] == "done"
    head = ("notebook", "state", "wall time", "finished (UTC)", "note")
    print(tabulate(table, head, "plain", disable_numparse=True))
    return 1 if options.check and not all_done else 0


def _compute(options: argparse.Namespace) -> None:
    """Plan or compute the experiments of one notebook, or of all.

    All notebooks share a budget: each has what those before it left.
    """
    from .experiments.plan import TooShortError
    from .notebook import grids

    if options.name == "all" and options.table:
        raise FltnbError(
            "--table needs one notebook, as tables of several papers have one name: "
            "name it in place of all."
        )
    if options.fresh:
        os.environ["FLTNB_FRESH"] = "1"  # workers see it too
    _use_dask(options.dask)
    budget = _seconds(options.budget)
    if options.name != "all":
        _compute_one(options.name, options, budget)
        return

    begun = monotonic()
    for name in grids.with_experiments():
        left = None
        if budget is not None and not options.plan:
            left = budget - (monotonic() - begun)
            if left <= 0:
                print(f"The time is over; nothing was computed from {name} on.")
                return
        try:
            _compute_one(name, options, left)
        except TooShortError as error:  # another notebook may have shorter ones
            print(error)


def _seconds(budget: str | None) -> float | None:
    """Return the seconds of a budget such as "2.5h"; None without one."""
    from .experiments.plan import minutes

    if budget is None:
        return None
    return 60 * minutes(budget)


def _compute_one(name: str, options: argparse.Namespace, budget: float | None) -> None:
    """Plan or compute one notebook.

    Runs of the profile "demo" stay in the local store, and are not committed.

    Parameters
    ----------
    name : str
        The notebook.
    options : Namespace
        Of the command.
    budget : float, optional
        Seconds; without one everything is computed.
    """
    from .notebook import compute

    rows = compute.asked(name, options.profile, options.table)
    keep = options.profile != "demo"
    where = "the ledger" if keep else "the local store"
    if not options.plan and budget is None:
        count = compute.compute_all(name, rows, keep, n_jobs=options.jobs)
        print(f"Notebook {name}: {count} experiments are in {where}.")
        return

    planned = compute.missing(rows, options.fresh)
    every = {row.experiment.id for row in rows}
    _tell(name, len(every), planned)
    if options.plan:
        by_table = compute.by_table(name, options.profile, planned)
        each = options.name != "all"
        _tell_plan(by_table, planned if each else [])
    elif planned and budget is not None:
        count = compute.compute_within(name, planned, budget, keep, n_jobs=options.jobs)
        print(f"{count} of {len(planned)} were computed and are in {where}.")


def _tell_plan(by_table: dict[str, list], planned: list) -> None:
    """Print what each table lacks, and the time of each experiment of ``planned``."""
    for table, ones in by_table.items():
        if ones:
            print(f"  {table}: {_cost(ones)}")
    for one in planned:
        cost = "not known"
        if one.seconds is not None:
            cost = duration(one.seconds)
        print(f"  {cost:>12}  {one.rows[0]}")


def _tell(name: str, total: int, planned: list) -> None:
    """Print how many experiments are stored, and how long the others take.

    ``total``: number of all experiments; ``planned``: those that are missing.
    """
    there = total - len(planned)
    print(f"Notebook {name}: {there} of {total} experiments are stored.")
    about, unknown = _time_of(planned)
    if about:
        known = len(planned) - unknown
        print(f"{known} of the others take about {about} on this machine.")
    if unknown:
        print(f"The time of {unknown} is not known: nothing similar was timed here.")


def _cost(planned: list) -> str:
    """Return the number of missing experiments and their time, in a few words."""
    words = [f"{len(planned)} missing"]
    about, unknown = _time_of(planned)
    if about:
        words.append(f"about {about}")
    if unknown:
        words.append(f"{unknown} not known")
    return ", ".join(words)


def _time_of(planned: list) -> tuple[str, int]:
    """Return the total time of experiments, "" for none, and of how many it is unknown.

    The time of an experiment is known if a similar one was timed on this machine.
    """
    known = [one.seconds for one in planned if one.seconds is not None]
    unknown = len(planned) - len(known)
    if not known:
        return "", unknown
    return duration(sum(known)), unknown


def _merge(options: argparse.Namespace) -> None:
    """Add another machine's ledgers to those here, and print a line for each."""
    from .experiments.ledger import merge_folder

    for line in merge_folder(options.folder):
        print(line)


def _counts(options: argparse.Namespace) -> None:
    """Print how printed numbers were tested."""
    from . import papers

    print(papers.counts().to_csv(index=False), end="")


def _report(options: argparse.Namespace) -> None:
    """Write the report."""
    from . import papers

    papers.report.write()
    print("The report is in docs/report/; `make site` makes web pages of it.")


def _arena(options: argparse.Namespace) -> int:
    """Run a method and write its card, or compute a part of a card again.

    The method "all" runs those of this package and prints their table; it has no card.
    Returns 1 if a card is not confirmed, or if all runs failed.
    """
    from . import arena
    from .arena import page

    if options.verify:
        return _verify(options)
    if not options.method:
        raise FltnbError(
            "The arena needs a method: name it after the word arena, such as "
            "my_method.py:MyMethod or FedAvg."
        )
    budget = _seconds(options.budget)
    if options.wrong_k and (options.method != "all" or options.track or options.tuned):
        raise FltnbError(
            "--wrong-k is only for the method all, without --track and --tuned."
        )
    if options.method == "all":
        how: dict[str, Any] = {"demo": options.demo, "compute": True}
        how |= {"jobs": options.jobs, "budget": budget}
        if options.wrong_k:
            table = arena.everybody_wrong_k(**how)
        else:
            play = arena.everybody_tuned if options.tuned else arena.everybody
            table = play(played=[options.track] if options.track else None, **how)
        print(page.markdown(table.rows()))
        print(table)
        return 0
    page.check_file(options.out)
    rules = arena.Rules(options.track, options.demo, options.tuned)
    card = arena.compete(options.method, rules, budget, options.jobs)
    page.save(card, options.out)
    print("\n".join([page.row(card), *page.reasons(card)]))
    return int(page.nothing_ran(card))


def _verify(options: argparse.Namespace) -> int:
    """Compute a part of a card again; print what differs, and return 1 if anything."""
    from . import arena

    more = (options.method, options.track, options.budget, options.tuned)
    if any(more) or options.wrong_k or options.demo or options.jobs != 1:
        raise FltnbError(
            "--verify takes a card and nothing else: the card says what was run."
        )
    card = arena.read(options.verify)
    wrong = arena.verify(card)
    for line in wrong:
        print(line)
    if wrong:
        print("The card is not confirmed.")
        return 1
    print("The card is confirmed.")
    return 0


def _use_dask(address: str | None) -> None:
    """Let this process and its kernels send their runs to a scheduler.

    ``address``: None for that of the environment, if any. Raises FltnbError if nothing
    answers.
    """
    from .experiments import machines

    if address is not None:
        machines.connect(address)
        os.environ["FLTNB_DASK"] = address
    machines.active()


def _workers(options: argparse.Namespace) -> None:
    """Print a line for each worker of a Dask scheduler."""
    from .experiments import machines

    client = machines.connect(options.address)
    about = machines.check(client)
    threads = client.nthreads()
    for worker, there in sorted(about.items()):
        count = threads.get(worker, 1)
        print(f"{worker}: {count} thread(s), {there['hardware']}, code {there['code']}")
    print(f"{len(about)} worker(s) at {options.address}.")


def _doctor(options: argparse.Namespace) -> int:
    """Print what is installed and missing on this machine."""
    from . import doctor

    return doctor.show()


def duration(seconds: float) -> str:
    """Return a wall time in words.

    Examples
    --------
    >>> duration(8.25), duration(75), duration(3725)
    ('8.2 s', '1 min 15 s', '1 h 02 min')
    """
    if seconds < 59.95:  # more would be written as 60.0 s
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


if __name__ == "__main__":
    # SIGTERM also ends the kernel and its workers.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
