# SPDX-License-Identifier: Apache-2.0
"""The commands of `ramet`: arguments, options and help.

Help, completions and man pages are made from the declarations in this file. It imports neither rich
nor the SDK: each command imports its work when it runs, because an import takes part of the time of
every command.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any, Callable, NoReturn, Sequence

import click

from ramet.cli import parse
from ramet.cli.complete import (
    complete_any,
    complete_checkpoint,
    complete_sandbox,
    complete_space,
    complete_template,
    complete_word,
)
from ramet.cli.declare import AFTER_DASHES, Command, Commands, argument, flag, help_of, option
from ramet.cli.failure import FAILED, Ended, Failure, complain, end

if TYPE_CHECKING:
    from ramet import Client, Sandbox
    from ramet.cli.programs import Options
    from ramet.types import Conflicts

_HELP = {"help_option_names": ["-h", "--help"]}
# Everything after the first argument belongs to the program that runs in the sandbox.
_PASS = {**_HELP, "allow_interspersed_args": False}
# All arguments belong to another program.
_PASS_ALL = {"help_option_names": [], "ignore_unknown_options": True}


def run(arguments: list[str]) -> NoReturn:
    """Runs a command of `ramet` and exits with its code."""
    warnings.showwarning = _warn
    # httpx imports its own command line, with all of rich and pygments, unless that import fails.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    try:
        root.main(args=arguments, prog_name="ramet", complete_var="_RAMET_COMPLETE")
    except Ended:
        raise
    except SystemExit as parser:  # 1: Ctrl-C at a prompt, 2: the command line is wrong
        completing = "_RAMET_COMPLETE" in os.environ
        codes = {} if completing else {1: 128 + 2, 2: FAILED}
        raise SystemExit(codes.get(int(parser.code or 0), parser.code)) from None
    raise SystemExit(0)


def command(
    name: str, section: str, settings: dict[str, Any] = _HELP
) -> Callable[[Callable[..., int | None]], Command]:
    """Declares a command. Its function returns the exit code, or None for 0; its errors are
    printed, and end the program with code 125."""

    def declare(function: Callable[..., int | None]) -> Command:
        @functools.wraps(function)
        def guarded(**values: Any) -> None:
            if code := _guard(lambda: function(**values)):
                end(code)

        made = click.command(
            name, cls=Command, context_settings=settings, help=help_of(function)
        )(guarded)
        made.section = section
        root.add_command(made)
        return made

    return declare


def _guard(work: Callable[[], int | None]) -> int | None:
    from ramet.cli.terminal import end_in_order
    from ramet.errors import RametError

    end_in_order()
    try:
        code = work()
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # for example `ramet logs ID | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + 13
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 128 + 2
    except (RametError, Failure, OSError) as failed:
        complain(failed)
        return FAILED


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"ramet: warning: {message}", file=sys.stderr)


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from ramet import __version__

        print(f"ramet {__version__}")
        ctx.exit()


@click.group(
    name="ramet",
    cls=Commands,
    context_settings=_HELP,
    help="Sandboxes for AI agents: real microVMs that can be forked while they run.",
)
@option("--host", "-H", metavar="URL", help="The service. It takes precedence over RAMET_HOST.")
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_version,
    help="Print this program's version.",
)
def root(host: str | None) -> None:
    """Applies the options before the command."""
    if host:
        os.environ["RAMET_HOST"] = host


# Arguments and options that several commands have.

RUN, SANDBOXES, FILES, FORKS, CHECKPOINTS, SPACES, PORTS, SETUP = (
    "Run",
    "Sandboxes",
    "Files",
    "Forks",
    "Checkpoints",
    "Spaces",
    "Ports",
    "Set up",
)
A_SANDBOX = "A sandbox: its id, or as much of it as is unambiguous."
sandbox_id = argument("sandbox", "ID", A_SANDBOX, values=complete_sandbox)
optional_id = argument(
    "sandbox",
    "[ID]",
    "A sandbox. Without it, a new one is used, and removed at the end.",
    values=complete_sandbox,
)
space_id = argument(
    "space",
    "SPACE",
    "A Space: its id, or as much of it as is unambiguous.",
    values=complete_space,
)
api_json = flag("--json", help="Print JSON, with the fields of the API.")
other_json = flag("--json", help="Print JSON.")
quiet_ids = flag("--quiet", "-q", help="Print ids only.")
template_option = option(
    "--template", metavar="NAME", help="Start from this template.", values=complete_template
)
lifetime_option = option(
    "--lifetime",
    metavar="TIME",
    type=parse.DURATION,
    help="End the sandbox after it: seconds, 30m, 2h, 1d.",
)
no_egress_option = flag("--no-egress", help="Close its network for ever.")
env_option = option(
    "--env",
    "-e",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Set a variable; without a value, copy it.",
)
name_option = option("--name", metavar="NAME", help="A name for `ls`: the metadata `name`.")
metadata_option = option(
    "--metadata",
    multiple=True,
    metavar="NAME=VALUE",
    help="Text that is stored with the sandbox.",
)
each_call_option = option(
    "--checkpoint-each-call",
    "each_call",
    type=click.IntRange(0, 1000),
    metavar="N",
    help="Keep the state after each of the last N calls, for `ramet undo`, which goes back N - 1 "
    "calls at most. 0: do not.",
)
tree_option = option(
    "--tree",
    multiple=True,
    metavar="NAME=VALUE",
    help="Limit the sandbox and all its forks together: live, ram_mib, cpu_seconds, wall_seconds, "
    "depth, at_limit.",
)
workdir_option = option("--workdir", "-w", metavar="PATH", help="Working directory.")
user_option = option("--user", "-u", metavar="NAME", help="Run as this user, not root.")
interactive_option = flag("--interactive", "-i", help="Pass standard input to the program.")
tty_option = flag("--tty", "-t", help="Run the program on a terminal.")
timeout_option = option(
    "--timeout",
    metavar="TIME",
    type=parse.DURATION,
    help="End the program after it: seconds, 30m, 2h. The exit code is 124.",
)


def together(*parts: Callable[..., Any]) -> Callable[..., Any]:
    """Returns one decorator that does what several do."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for part in reversed(parts):
            function = part(function)
        return function

    return decorate


size_options = together(
    template_option,
    option("--cpus", type=int, metavar="N", help="Virtual CPUs."),
    option("--memory", "-m", type=parse.MEMORY, metavar="SIZE", help="512m, 2g, or MiB."),
    option("--disk", type=int, metavar="GIB", help="Root disk in GiB."),
    lifetime_option,
)
life_options = together(
    option(
        "--idle-timeout",
        metavar="TIME",
        type=parse.DURATION,
        help="End the sandbox after so long without activity.",
    ),
    flag("--persistent", help="Freeze it to a Space at its timeouts."),
    no_egress_option,
)
program_options = together(
    interactive_option, tty_option, env_option, workdir_option, user_option, timeout_option
)


# Run


@command("run", RUN, _PASS)
@argument(
    "what",
    "FILE [ARG]... | -- CMD [ARG]...",
    "A local Python file (-: from standard input), a local script with a first line like "
    "#!/bin/sh, or a command in the sandbox.",
    nargs=-1,
    type=click.Path(),
)
@size_options
@no_egress_option
@name_option
@metadata_option
@program_options
@option(
    "--with",
    "along",
    multiple=True,
    metavar="PATH",
    type=click.Path(),
    help="Take a file or folder along, into the working directory. FOLDER/.: what is in it.",
)
@flag("--keep", help="Keep the sandbox, and print its id on standard error.")
def run_(
    what: Sequence[str],
    keep: bool,
    along: Sequence[str],
    interactive: bool,
    tty: bool,
    env: Sequence[str],
    workdir: str | None,
    user: str | None,
    timeout: int | None,
    template: str | None,
    cpus: int | None,
    memory: int | None,
    disk: int | None,
    lifetime: int | None,
    no_egress: bool,
    name: str | None,
    metadata: Sequence[str],
) -> int:
    """Run a local file or a command in a new sandbox, and remove the sandbox.

    A Python file runs in the sandbox's persistent Python process: with --keep, `ramet python ID`
    finds its variables. With -i, -t or -u it is a program of its own. Standard input is passed on
    if it is a pipe or a file. The exit code is the program's.
    """
    from ramet import Sandbox
    from ramet.cli import programs

    options = _options(interactive, tty, env, workdir, user, timeout)
    # Read before a sandbox is made for it.
    task = programs.task(what, options, is_command=_is_command(what), along=along)
    with _connect() as client:
        sandbox = Sandbox(
            client=client,
            template=template,
            vcpus=cpus,
            ram_mib=memory,
            rootfs_gb=disk,
            lifetime_seconds=lifetime,
            egress=False if no_egress else None,
            metadata=parse.metadata(metadata, name),
        )
        try:
            if keep:
                print(sandbox.id, file=sys.stderr)
            return task(sandbox)
        finally:
            if not keep:
                sandbox.close()


@command("exec", RUN, _PASS)
@sandbox_id
@argument("words", "[--] CMD [ARG]...", "A program and its arguments.", nargs=-1, required=True)
@program_options
@flag("--detach", "-d", help="Print the process's id, and do not wait for it.")
def exec_(
    sandbox: str,
    words: Sequence[str],
    interactive: bool,
    tty: bool,
    env: Sequence[str],
    workdir: str | None,
    user: str | None,
    timeout: int | None,
    detach: bool,
) -> int:
    """Run a program in a sandbox, which ends with this command unless -d is given.

    No shell interprets the arguments. The exit code is the program's: 126 if it is not executable,
    127 if it does not exist, 128 + N if signal N killed it, 124 at the time limit.
    """
    from ramet.cli import programs

    options = _options(interactive, tty, env, workdir, user, timeout)
    with _connect() as client:
        place = _open(client, sandbox)
        if detach:
            print(programs.start(place, _command(words), options, detach=True).id)
            return 0
        return programs.run(place, _command(words), options)


@command("shell", RUN)
@optional_id
@template_option
@env_option
@workdir_option
@user_option
def shell(
    sandbox: str | None,
    template: str | None,
    env: Sequence[str],
    workdir: str | None,
    user: str | None,
) -> int:
    """Open a shell on a terminal in a sandbox."""
    from ramet.cli import programs

    options = _options(True, True, env, workdir, user, None)
    return _in_sandbox(sandbox, template, lambda place: programs.shell(place, options))


@command("python", RUN)
@optional_id
@template_option
def python(sandbox: str | None, template: str | None) -> int:
    """Open a prompt for the persistent Python process of a sandbox.

    Variables stay when you leave with Ctrl-D; Ctrl-C interrupts the running code. If standard input
    is not a terminal, all of it runs as one program.
    """
    from ramet.cli import repl

    return _in_sandbox(sandbox, template, repl.run)


@command("logs", RUN)
@sandbox_id
@argument("process", "[PROCESS]", "A process, such as `ramet exec -d` prints.")
@flag("--follow", "-f", help="Go on until the sandbox or process ends.")
def logs(sandbox: str, process: str | None, follow: bool) -> int | None:
    """Print the kept output of a sandbox's Python process, or of one of its other processes."""
    from ramet.cli import logs as output

    with _connect() as client:
        place = _open(client, sandbox)
        if process:
            return output.of_process(place, process, follow=follow)
        output.of_calls(place, follow=follow)
        return None


@command("ps", RUN)
@sandbox_id
@other_json
@quiet_ids
def ps(sandbox: str, json: bool, quiet: bool) -> None:
    """List the processes and terminals of a sandbox that were started by `exec` or the API."""
    from ramet.cli import listing

    with _connect() as client:
        listing.processes(_open(client, sandbox).processes.list(), as_json=json, quiet=quiet)


@command("kill", RUN)
@sandbox_id
@argument("processes", "PROCESS...", "Processes, such as `ramet ps` lists.", nargs=-1)
@option(
    "--signal",
    "-s",
    metavar="SIGNAL",
    help="Send TERM, INT or another signal to the program only. Default: kill it and its children.",
)
def kill(sandbox: str, processes: Sequence[str], signal: str | None) -> int:
    """End processes of a sandbox, and print their ids."""
    from ramet.cli import remove

    with _connect() as client:
        return remove.kill(_open(client, sandbox), processes, signal)


@command("interrupt", RUN)
@sandbox_id
@option("--context", metavar="CONTEXT", help="In this context, not in the Python process.")
def interrupt(sandbox: str, context: str | None) -> None:
    """Interrupt the running code of a sandbox's Python process, like Ctrl-C."""
    from ramet.cli import service

    with _connect() as client:
        client.interrupt(service.sandbox_id(client, sandbox), context_id=context)


# Sandboxes


@command("create", SANDBOXES)
@size_options
@life_options
@env_option
@name_option
@metadata_option
@option(
    "--checkpoint",
    metavar="CHECKPOINT",
    help="Start from this checkpoint, with its template and sizes.",
    values=complete_checkpoint,
)
@each_call_option
@tree_option
@api_json
def create(
    template: str | None,
    cpus: int | None,
    memory: int | None,
    disk: int | None,
    lifetime: int | None,
    idle_timeout: int | None,
    persistent: bool,
    no_egress: bool,
    env: Sequence[str],
    name: str | None,
    metadata: Sequence[str],
    checkpoint: str | None,
    each_call: int | None,
    tree: Sequence[str],
    json: bool,
) -> None:
    """Create a sandbox and print its id."""
    from ramet.cli import service
    from ramet.cli.output import print_json

    with _connect() as client:
        made = client.create_sandbox(
            template=template,
            vcpus=cpus,
            ram_mib=memory,
            rootfs_gb=disk,
            lifetime_seconds=lifetime,
            idle_timeout_seconds=idle_timeout,
            persistent=persistent or None,
            egress=False if no_egress else None,
            env=parse.variables(env),
            metadata=parse.metadata(metadata, name),
            checkpoint=service.checkpoint_id(client, checkpoint) if checkpoint else None,
            checkpoint_each_call=parse.each_call(each_call),
            tree=parse.budget(tree),
        )
        if json:
            print_json(dict(client.get_sandbox(made.id).raw))
        else:
            print(made.id)


@command("ls", SANDBOXES)
@flag("--tree", help="Show forks below their parents.")
@option(
    "--state",
    metavar="STATE",
    help="Only ready, running or freezing ones.",
    values=complete_word("ready", "running", "freezing"),
)
@option("--template", metavar="NAME", help="Only those of a template.", values=complete_template)
@option("--metadata", multiple=True, metavar="NAME=VALUE", help="Only those with this metadata.")
@api_json
@quiet_ids
def ls(
    tree: bool,
    state: str | None,
    template: str | None,
    metadata: Sequence[str],
    json: bool,
    quiet: bool,
) -> None:
    """List the sandboxes, oldest first."""
    from ramet.cli import listing

    with _connect() as client:
        found = client.list_sandboxes(
            state=state, template=template, metadata=parse.pairs(metadata)
        )
        listing.sandboxes(found, tree=tree, as_json=json, quiet=quiet)


@command("info", SANDBOXES)
@argument("what", "ID", "A sandbox, or a checkpoint.", values=complete_any)
@api_json
def info(what: str, json: bool) -> None:
    """Describe a sandbox or a checkpoint: its size, its times, its relatives, its metadata."""
    from ramet.cli import listing, service

    with _connect() as client:
        if what.startswith(service.CHECKPOINT):
            kept = client.get_checkpoint(service.checkpoint_id(client, what))
            listing.one_checkpoint(kept, as_json=json)
        else:
            found = client.get_sandbox(service.sandbox_id(client, what))
            listing.one_sandbox(found, as_json=json)


@command("update", SANDBOXES)
@sandbox_id
@lifetime_option
@option(
    "--idle-timeout",
    metavar="TIME",
    type=parse.DURATION,
    help="End the sandbox after so long without activity.",
)
@click.option(
    "--persistent/--no-persistent",
    default=None,
    help="Freeze it to a Space at its timeouts, or end it.",
)
@no_egress_option
@name_option
@metadata_option
@each_call_option
@api_json
def update(
    sandbox: str,
    lifetime: int | None,
    idle_timeout: int | None,
    persistent: bool | None,
    no_egress: bool,
    name: str | None,
    metadata: Sequence[str],
    each_call: int | None,
    json: bool,
) -> None:
    """Change settings of a sandbox. Its lifetime is counted from now; other metadata stays."""
    from ramet.cli import listing, service

    with _connect() as client:
        changed = service.sandbox_id(client, sandbox)
        more = parse.metadata(metadata, name)
        found = client.update_sandbox(
            changed,
            lifetime_seconds=lifetime,
            idle_timeout_seconds=idle_timeout,
            persistent=persistent,
            egress=False if no_egress else None,
            metadata=None if more is None else client.get_sandbox(changed).metadata | more,
            checkpoint_each_call=parse.each_call(each_call),
        )
        listing.one_sandbox(found, as_json=json)


@command("stats", SANDBOXES)
@argument(
    "ids", "[ID]...", "Sandboxes. Without one, all.", nargs=-1, values=complete_sandbox
)
@other_json
def stats(ids: Sequence[str], json: bool) -> None:
    """Show what sandboxes use of the host now: CPU, memory, disk and network."""
    from ramet.cli import listing, service

    with _connect() as client:
        names = [service.sandbox_id(client, one) for one in ids]
        listing.stats(client, names or [one.id for one in client.iter_sandboxes()], as_json=json)


@command("rm", SANDBOXES)
@argument("ids", "ID...", "Sandboxes, Spaces and checkpoints.", nargs=-1, values=complete_any)
@flag("--force", "-f", help="Ignore those that do not exist.")
def rm(ids: Sequence[str], force: bool) -> int:
    """Remove sandboxes, with their memory and disk, Spaces, and checkpoints."""
    from ramet.cli import remove

    with _connect() as client:
        return remove.run(client, ids, force=force)


# Files


@command("cp", FILES)
@argument("sources", "SOURCE...", "Local paths, ID:PATH, or -.", nargs=-1, type=click.Path())
@argument("target", "TARGET", "A local path, ID:PATH, or -.", type=click.Path())
@flag("--quiet", "-q", help="Show no progress bar.")
def cp(sources: Sequence[str], target: str, quiet: bool) -> None:
    """Copy files and folders to, from or between sandboxes.

    A relative PATH is below /root. An existing target folder gets the source inside of it, and so
    does the target of several sources; SOURCE/. means the content of a folder. - is standard input
    or output; a folder is written to it as a tar archive.
    """
    from ramet.cli import copying

    with _connect() as client:
        copying.run(client, sources, target, quiet=quiet)


@command("diff", FILES)
@sandbox_id
@argument(
    "other",
    "[OTHER]",
    "Another sandbox, or a checkpoint. Without it, ID is compared with its parent.",
    values=complete_sandbox,
)
@option(
    "--path",
    "-p",
    multiple=True,
    metavar="PATH",
    help="Compare this. Default: /root and /tmp.",
)
@other_json
def diff(sandbox: str, other: str | None, path: Sequence[str], json: bool) -> None:
    """List the files in which two sandboxes differ, or a sandbox and a checkpoint.

    A: only OTHER has it. C: its content differs. D: only ID has it. Without OTHER, the parent of ID
    is compared with ID: the list has the changes in a fork.
    """
    from ramet.cli import forks

    with _connect() as client:
        forks.diff(client, sandbox, other, path, as_json=json)


# Forks


@command("events", RUN)
@option("--since", type=click.IntRange(min=0), metavar="N", help="Only events after number N.")
@flag("--follow", "-f", help="Go on with new events; without --since, print only those.")
@option("--newest", type=click.IntRange(min=1), metavar="N", help="Only the last N events.")
@flag("--json", help="Print one JSON object per line.")
def events(since: int | None, follow: bool, newest: int | None, json: bool) -> None:
    """Print what happened to your sandboxes and keys; with an operator's key, to all of the host."""
    from ramet.cli import logs as output

    if follow and newest:
        raise click.UsageError("--follow and --newest cannot be combined")
    with _connect() as client:
        output.of_host(client, since=since, follow=follow, newest=newest, as_json=json)


@command("fork", FORKS)
@argument("source", "ID", "A sandbox, or a checkpoint or Space, which stay.", values=complete_any)
@option(
    "-n", type=click.IntRange(min=1), default=1, metavar="N", help="Number of children. Default: 1."
)
@flag("--reseed", help="Seed Python's and numpy's generators anew in each.")
@other_json
def fork(source: str, n: int, reseed: bool, json: bool) -> int:
    """Clone a running sandbox, memory and processes included, and print the children's ids. Of a
    checkpoint or a Space, start sandboxes with its state."""
    from ramet.cli import forks

    with _connect() as client:
        return forks.fork(client, source, n, reseed=reseed, as_json=json)


@command("tree", FORKS)
@sandbox_id
@flag("--end", help="End all sandboxes of the tree; or, if ID is not its root, ID and its forks.")
@api_json
def tree(sandbox: str, end: bool, json: bool) -> None:
    """Show the tree that a sandbox belongs to: its budget, and what each sandbox costs."""
    from ramet.cli import listing, service

    with _connect() as client:
        name = service.sandbox_id(client, sandbox)
        if end:
            client.delete_tree(name)
        else:
            listing.tree(client.get_tree(name), as_json=json)


@command("merge", FORKS)
@argument("parent", "ID", A_SANDBOX, values=complete_sandbox)
@argument(
    "forks",
    "FORK...",
    "A fork of it, or of its forks. With --files there may be several.",
    values=complete_sandbox,
    nargs=-1,
    required=True,
)
@flag("--files", help="Only bring the changed files of the forks into ID, which goes on running.")
@option("--base", metavar="BASE", help="With --files: a child of the same fork, unchanged.")
@option("--path", "-p", multiple=True, metavar="PATH", help="With --files. Default: /root and /tmp.")
@option(
    "--conflicts",
    type=click.Choice(["report", "ours", "theirs", "markers"]),
    default="report",
    metavar="HOW",
    help="With --files: report (then nothing is written), ours, theirs or markers.",
)
@flag("--json", help="With --files: print JSON.")
def merge(
    parent: str,
    forks: Sequence[str],
    files: bool,
    base: str | None,
    path: Sequence[str],
    conflicts: Conflicts,
    json: bool,
) -> None:
    """Let a sandbox continue as one of its forks: ID keeps its id, and gets all of FORK.

    With --files, ID goes on as itself, and gets the files that the forks changed since BASE was
    forked. A, C, D: it was added, changed or deleted; M: merged from several sides; U: a conflict.
    """
    from ramet.cli import forks as merging

    if not files and (len(forks) > 1 or base or path or json or conflicts != "report"):
        raise click.UsageError("Name one FORK and give no other option, or add --files.")
    if files and not base:
        raise click.UsageError("--files needs --base.")
    with _connect() as client:
        if files:
            merging.merge_files(
                client, parent, forks, str(base), path, conflicts=conflicts, as_json=json
            )
        else:
            merging.merge(client, parent, forks[0])


# Checkpoints


@command("checkpoint", CHECKPOINTS)
@argument("what", "ID", "A sandbox; or a checkpoint, to change it.", values=complete_any)
@option("--name", metavar="NAME", help="Its name, which need not be unique.")
@option("--label", multiple=True, metavar="NAME=VALUE", help="A label, by which it can be found.")
@option("--ttl", metavar="TIME", type=parse.DURATION, help="Delete it after so long.")
@click.option("--pin/--unpin", default=None, help="Keep it until it is unpinned.")
@api_json
def checkpoint(
    what: str,
    name: str | None,
    label: Sequence[str],
    ttl: int | None,
    pin: bool | None,
    json: bool,
) -> None:
    """Keep the present state of a sandbox, which goes on, and print the checkpoint's id.

    `ramet fork CHECKPOINT` and `ramet create --checkpoint` start sandboxes from it, also after its
    sandbox has ended.
    """
    from ramet.cli import checkpoints

    with _connect() as client:
        checkpoints.keep(
            client, what, name=name, labels=parse.pairs(label), ttl=ttl, pin=pin, as_json=json
        )


@command("checkpoints", CHECKPOINTS)
@argument("sandbox", "[ID]", "Only those of this sandbox.", values=complete_sandbox)
@option("--name", metavar="NAME", help="Only those with this name.")
@option("--label", multiple=True, metavar="NAME=VALUE", help="Only those with this label.")
@flag("--prune", help="Delete old ones that are not pinned, and print their ids.")
@option("--keep", type=click.IntRange(min=1), metavar="N", help="With --prune: keep the N newest.")
@option(
    "--older-than", metavar="TIME", type=parse.DURATION, help="With --prune: keep younger ones."
)
@flag("--dry-run", help="With --prune: only print which.")
@api_json
@quiet_ids
def checkpoints(
    sandbox: str | None,
    name: str | None,
    label: Sequence[str],
    prune: bool,
    keep: int | None,
    older_than: int | None,
    dry_run: bool,
    json: bool,
    quiet: bool,
) -> None:
    """List the checkpoints, oldest first. `ramet rm CHECKPOINT` removes one."""
    from ramet.cli import checkpoints as kept

    limited = keep is not None or older_than is not None
    if prune and (name or label or not limited):
        raise click.UsageError("--prune needs --keep or --older-than, and has no other filter.")
    if not prune and (limited or dry_run):
        raise click.UsageError("--keep, --older-than and --dry-run need --prune.")
    with _connect() as client:
        if prune:
            kept.prune(
                client,
                sandbox,
                keep=keep,
                older_than=older_than,
                dry_run=dry_run,
                as_json=json,
            )
        else:
            labels = parse.pairs(label)
            kept.show(client, sandbox, name=name, labels=labels, as_json=json, quiet=quiet)


@command("rollback", CHECKPOINTS)
@sandbox_id
@argument("checkpoint", "CHECKPOINT", "One of the same size.", values=complete_checkpoint)
@option("--keep", metavar="NAME", help="Keep the present state as a checkpoint, and print its id.")
def rollback(sandbox: str, checkpoint: str, keep: str | None) -> None:
    """Give a sandbox the state of a checkpoint. It keeps its id; what runs in it ends."""
    from ramet.cli import service

    with _connect() as client:
        name = service.sandbox_id(client, sandbox)
        kept = client.rollback_sandbox(name, service.checkpoint_id(client, checkpoint), keep=keep)
    if kept:
        print(kept)


@command("undo", CHECKPOINTS)
@sandbox_id
@option(
    "-n", type=click.IntRange(1, 1000), default=1, metavar="N", help="Number of calls. Default: 1."
)
@option("--keep", metavar="NAME", help="Keep the present state as a checkpoint of this name.")
def undo(sandbox: str, n: int, keep: str | None) -> None:
    """Give a sandbox the state before its last calls, and print the id of the checkpoint.

    The sandbox needs `--checkpoint-each-call` of `ramet create` or `ramet update`.
    """
    from ramet.cli import service

    with _connect() as client:
        print(client.undo_calls(service.sandbox_id(client, sandbox), n, keep=keep))


@command("history", CHECKPOINTS)
@sandbox_id
@api_json
def history(sandbox: str, json: bool) -> None:
    """List the last calls, checkpoints, forks, merges and rollbacks of a sandbox, oldest first."""
    from ramet.cli import listing, service

    with _connect() as client:
        listing.history(client.get_history(service.sandbox_id(client, sandbox)), as_json=json)


# Spaces


@command("freeze", SPACES)
@sandbox_id
@api_json
def freeze(sandbox: str, json: bool) -> None:
    """Write a sandbox to disk, memory included, and print the id of the Space."""
    from ramet.cli import service
    from ramet.cli.output import print_json

    with _connect() as client:
        space = client.freeze_sandbox(service.sandbox_id(client, sandbox))
    if json:
        print_json(dict(space.raw))
    else:
        print(space.id)


@command("resume", SPACES)
@space_id
@lifetime_option
@life_options
@api_json
def resume(
    space: str,
    lifetime: int | None,
    idle_timeout: int | None,
    persistent: bool,
    no_egress: bool,
    json: bool,
) -> None:
    """Continue a Space as a sandbox, and print the sandbox's id. The Space is gone afterwards."""
    from ramet.cli import service
    from ramet.cli.output import print_json

    with _connect() as client:
        made = client.resume_space(
            service.space_id(client, space),
            lifetime_seconds=lifetime,
            idle_timeout_seconds=idle_timeout,
            persistent=persistent or None,
            egress=False if no_egress else None,
        )
        if json:
            print_json(dict(client.get_sandbox(made.id).raw))
        else:
            print(made.id)


@command("spaces", SPACES)
@api_json
@quiet_ids
def spaces(json: bool, quiet: bool) -> None:
    """List the Spaces, oldest first. `ramet rm SPACE` removes one."""
    from ramet.cli import listing

    with _connect() as client:
        listing.spaces(client, as_json=json, quiet=quiet)


# Ports


@command("ports", PORTS)
@sandbox_id
@other_json
@flag("--quiet", "-q", help="Print port numbers only.")
def ports(sandbox: str, json: bool, quiet: bool) -> None:
    """List the ports of a sandbox that are shared by a URL."""
    from ramet.cli import listing

    with _connect() as client:
        listing.ports(_open(client, sandbox).ports(), as_json=json, quiet=quiet)


@command("url", PORTS)
@sandbox_id
@argument("port", "PORT", "The port that the server listens on.", type=click.IntRange(1, 65535))
@click.option("--public/--private", default=None, help="Admit everybody, or only who has the URL.")
@flag("--stop", help="End the share.")
def url(sandbox: str, port: int, public: bool | None, stop: bool) -> None:
    """Share a port of a sandbox, and print the URL of the server that listens there."""
    with _connect() as client:
        place = _open(client, sandbox)
        if stop:
            place.unshare(port)
        else:
            print(place.url(port, public=public))


@command("forward", PORTS)
@sandbox_id
@argument("ports", "[LOCAL:]PORT...", "Ports in the sandbox.", nargs=-1, required=True)
def forward(sandbox: str, ports: Sequence[str]) -> None:
    """Open ports of this machine that lead into a sandbox, until Ctrl-C."""
    from ramet.cli import forwarding

    with _connect() as client:
        forwarding.run(client, _open(client, sandbox), ports)


# Set up


@command("templates", SETUP)
@api_json
@flag("--quiet", "-q", help="Print names only.")
def templates(json: bool, quiet: bool) -> None:
    """List the templates, the default one first."""
    from ramet.cli import listing

    with _connect() as client:
        listing.templates(client, as_json=json, quiet=quiet)


@command("login", SETUP)
@argument("host", "[URL]", "The service. Default: as now.")
@flag("--key-stdin", help="Read the key from standard input.")
@option(
    "--ca-file", type=click.Path(), metavar="FILE", help="Trust the certificates of a PEM file."
)
def login(host: str | None, key_stdin: bool, ca_file: str | None) -> None:
    """Check an API key and save it with the service's address, readable by you only.

    RAMET_HOST, RAMET_API_KEY and RAMET_CA_FILE take precedence over the file.
    """
    from ramet.cli import account

    account.login(host, from_input=key_stdin, ca_file=ca_file)


@command("doctor", SETUP)
@other_json
def doctor(json: bool) -> int:
    """Check the address, the key, the versions, the templates, and a first call in a sandbox.

    Each line that failed says what to do. The exit code is 1 if one failed.
    """
    from ramet.cli import doctor as checks

    return 0 if checks.run(as_json=json) else 1


@command("mcp", SETUP, _PASS_ALL)
@argument("arguments", "[ARG]...", "Arguments of the server.", nargs=-1)
def mcp(arguments: Sequence[str]) -> int:
    """Serve the tools of sandboxes to an agent by the Model Context Protocol."""
    from ramet.cli import account

    return account.serve_mcp(list(arguments))


@command("version", SETUP)
@other_json
def version(json: bool) -> None:
    """Print the versions of this program and of the service."""
    from ramet import __version__
    from ramet.cli import settings
    from ramet.cli.output import print_json
    from ramet.cli.service import connect

    place = settings.load()
    if not json:
        print(f"ramet {__version__}", flush=True)  # also if no service answers
    with connect(place) as client:
        service = client.version()
    if json:
        print_json({"client": __version__, "service": service, "host": place.host})
    else:
        print(f"service {service} at {place.host}")


@command("completion", SETUP)
@argument(
    "shell",
    "bash|zsh|fish",
    "The command interpreter.",
    values=complete_word("bash", "zsh", "fish"),
)
def completion(shell: str) -> None:
    """Print the completions for a shell.

    bash: eval "$(ramet completion bash)" in ~/.bashrc. zsh: the same in ~/.zshrc, after compinit.
    fish: ramet completion fish >~/.config/fish/completions/ramet.fish
    """
    from ramet.cli import complete

    print(complete.script(root, shell))


@command("man", SETUP)
@argument(
    "name",
    "[COMMAND]",
    "A command of ramet.",
    values=lambda begin: complete_word(*root.commands)(begin),
)
@option("--write", type=click.Path(), metavar="FOLDER", help="Write all pages to a folder.")
def man(name: str | None, write: str | None) -> None:
    """Show the man page of ramet, or of one of its commands."""
    from ramet.cli import manual

    if write:
        manual.write(root, write)
    else:
        manual.show(root, name)


# --- shared by the commands ---


def _command(words: Sequence[str]) -> Sequence[str]:
    """Returns a command without the `--` before it, which the parser leaves after an argument."""
    if words[0].startswith("-") and words[0] != "--":
        raise click.UsageError(
            f"{words[0]} after the id would be the program: options go before the id, as in "
            f"ramet exec {words[0]} ID -- CMD"
        )
    rest = words[1:] if words[0] == "--" else words
    if not rest:
        raise click.BadParameter("name a program after --")
    return rest


def _is_command(words: Sequence[str]) -> bool:
    """Returns True if the words were written after a `--`."""
    rest: Sequence[str] | None = click.get_current_context().meta.get(AFTER_DASHES)
    return rest is not None and list(rest) == list(words)


def _connect() -> "Client":
    from ramet.cli.service import connect

    return connect()


def _open(client: "Client", name: str) -> "Sandbox":
    from ramet.cli.service import open_sandbox

    return open_sandbox(client, name)


def _in_sandbox(name: str | None, template: str | None, work: Callable[["Sandbox"], int]) -> int:
    """Does the work in a sandbox, or in a new one that is removed afterwards."""
    from ramet import Sandbox

    if name and template:
        raise Failure("a template is for a new sandbox", "leave out the id, or --template")
    with _connect() as client:
        if name:
            return work(_open(client, name))
        with Sandbox(client=client, template=template) as made:
            return work(made)


def _options(
    interactive: bool,
    tty: bool,
    env: Sequence[str],
    workdir: str | None,
    user: str | None,
    timeout: int | None,
) -> "Options":
    from ramet.cli.programs import Options

    return Options(interactive, tty, parse.variables(env), workdir, user, timeout)
