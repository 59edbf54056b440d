# SPDX-License-Identifier: Apache-2.0
"""Runs the code of all calls in one long-lived process; started and spoken to by the agent.

Frames of proto/agent.h come and go on descriptor CTL. The user's code shares this process and may
change anything in it, so what the driver needs is bound by name before any of it runs, and what
each call needs is put right before it starts.
"""

import builtins

__builtins__ = dict(vars(builtins))  # ours stay as they are when user code replaces one

import codecs
import gc
import io
import linecache
import os
import struct
import sys
import traceback
import types

# The C module: its Python wrapper goes through enum, which runs whatever users made of builtins.
from _signal import SIG_BLOCK, SIG_DFL, SIG_SETMASK, SIGCHLD, SIGINT, SIGKILL, SIGSTOP
from _signal import default_int_handler, getsignal, pthread_sigmask, valid_signals
from _signal import signal as set_handler
from _thread import start_new_thread
from fcntl import ioctl
from mmap import PROT_READ, mmap
from os import environb, fstat, getpid, kill, posix_spawn, read, urandom, waitpid, write
from select import POLLOUT, poll
from time import sleep

CTL, PIPE_OUT, PIPE_ERR, PROGRESS, STARTS = 1000, 1001, 1002, 1003, 1004  # as in driver.c
EXEC, CODE, RESEED = 2, 3, 5
PONG, EXIT, DONE, ERROR = 64, 67, 68, 69
PYTHON = 0
HEADER = struct.Struct("<IBBH")
REQUEST = struct.Struct("<BIIQ")
U32 = struct.Struct("<I")
EXITED = struct.Struct("<iB")
FRAME_MAX = HEADER.size + 65536
LAST_MAX = 32768  # bytes of text that go with an EXIT
FIONREAD = 0x541B
EMPTY = b"\0\0\0\0"  # what FIONREAD gives for an empty pipe
BASH = "/bin/bash"
ARGUMENT_MAX = 128 * 1024 - 1  # the kernel's MAX_ARG_STRLEN without the final zero
SCRIPT_FD = 250
ALL_SIGNALS = valid_signals() - {SIGKILL, SIGSTOP}
HELD_SIGNALS = ALL_SIGNALS - {SIGINT}
SOURCES_MAX = 32 << 20  # characters of earlier calls kept for tracebacks

main = types.ModuleType("__main__")
driver_pid = getpid()
progress = memoryview(mmap(PROGRESS, 24, prot=PROT_READ)).cast("Q")  # see output.h


# ---- standard streams -------------------------------------------------------------------------


def wait_until_read(pipe):
    """Wait until the agent has read the text that is in `pipe` now, or will read it before the
    other pipe, so that later text in the other one stays behind it. Text that others write
    meanwhile is not waited for.
    """
    delay = 0.00005
    try:
        size = ioctl(pipe, FIONREAD, EMPTY)
        if size == EMPTY:
            return
        end = bytes_read(pipe) + int.from_bytes(size, "little")
        while bytes_read(pipe) < end and not is_older(pipe) and not is_empty(pipe):
            sleep(delay)
            delay = min(2 * delay, 0.005)
    except OSError:
        pass  # user code closed our copy of the pipe: order is all that is lost


def is_empty(pipe):
    return ioctl(pipe, FIONREAD, EMPTY) == EMPTY


def bytes_read(pipe):
    return progress[pipe - PIPE_OUT]


def is_older(pipe):
    """Return whether the agent empties `pipe` before it reads the other one."""
    return progress[2] == pipe - PIPE_OUT + 1


class PipeWriter(io.RawIOBase):
    """Standard output or error: unbuffered, and in exact order with the other of the two."""

    def __init__(self, fd, name, other_pipe):
        self.fd = fd
        self.name = name
        self.mode = "wb"
        self.other_pipe = other_pipe
        self.before = None  # a stream whose buffered text is older than what is written here

    def fileno(self):
        return self.fd

    def writable(self):
        return True

    def isatty(self):
        return os.isatty(self.fd)

    def write(self, data):
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        if self.before is not None and not is_closed(self.before):
            self.before.flush()
        wait_until_read(self.other_pipe)
        try:
            done = write(self.fd, data)
        except BlockingIOError:
            done = 0
        size = len(data) if type(data) is bytes else memoryview(data).nbytes
        if done < size:
            self.write_rest(memoryview(data).cast("B")[done:])
        return size

    def write_rest(self, view):
        while view:
            try:
                view = view[write(self.fd, view) :]
            except BlockingIOError:  # some child made the pipe it shares with us non-blocking
                ready = poll()
                ready.register(self.fd, POLLOUT)
                ready.poll()


def encode_odd(error):
    """Escaped bytes become themselves again, other surrogates their three bytes: never an error."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    out = b""
    for odd in error.object[error.start : error.end]:
        escaped = "\udc80" <= odd <= "\udcff"
        out += odd.encode("utf-8", "surrogateescape" if escaped else "surrogatepass")
    return out, error.end


class Text(io.TextIOWrapper):
    """sys.stdout or sys.stderr. Only the former buffers, up to the end of a line, so the two are in
    order within lines too.
    """

    def __init__(self, fd, name, other_pipe):
        super().__init__(
            PipeWriter(fd, name, other_pipe),
            "utf-8",
            "ramet-odd",
            newline="\n",
            line_buffering=True,
            write_through=fd == 2,
        )
        self.mode = "w"


def is_closed(stream):
    try:
        return stream is None or stream.closed
    except AttributeError:
        return False  # a stand-in of the user's
    except ValueError:
        return True  # its buffer was detached


class Streams:
    """The driver's own three; user code may put others in their place, and they stay."""

    def __init__(self):
        codecs.register_error("ramet-odd", encode_odd)
        # Where the agent reads whatever user code does to descriptors 1 and 2.
        self.direct_err = PipeWriter(PIPE_ERR, "<stderr>", PIPE_OUT)
        self.last = b""  # of the call, behind all that is in the pipes
        self.out = self.err = None

    def mend(self):
        """After each call, when nobody waits: what it closed is opened again."""
        self.mend_descriptors()
        if is_closed(self.out) or is_closed(self.err):
            self.out = sys.__stdout__ = Text(1, "<stdout>", PIPE_ERR)
            self.err = sys.__stderr__ = Text(2, "<stderr>", PIPE_OUT)
            self.err.buffer.before = self.out
            sys.stdout = sys.stderr = None
        if is_closed(getattr(sys, "stdout", None)):
            sys.stdout = self.out
        if is_closed(getattr(sys, "stderr", None)):
            sys.stderr = self.err
        if is_closed(getattr(sys, "stdin", None)):  # exit() closes it
            sys.stdin = sys.__stdin__ = io.open(0, "r", encoding="utf-8", closefd=False)

    @staticmethod
    def mend_descriptors():
        for fd, source in ((0, None), (1, PIPE_OUT), (2, PIPE_ERR)):
            try:
                fstat(fd)
            except OSError:
                source = os.open("/dev/null", os.O_RDONLY) if source is None else source
                os.dup2(source, fd)
                if source not in (fd, PIPE_OUT, PIPE_ERR):
                    os.close(source)
        os.set_blocking(PIPE_OUT, True)
        os.set_blocking(PIPE_ERR, True)

    def flush(self):
        users = getattr(sys, "stdout", None), getattr(sys, "stderr", None)
        for stream in (*users, self.out, self.err):
            try:
                if stream is not None:
                    stream.flush()
            except BaseException:
                pass  # a user's stream, or a full disk behind descriptor 1

    def say(self, text):
        """Put text on the call's stderr, after all that was printed before it, once for a call. It
        goes with the call's end if it can: no pipe has to be waited for then.
        """
        self.flush()
        data = text.encode("utf-8", "ramet-odd")
        if getpid() == driver_pid and len(data) <= LAST_MAX:
            self.last = data
        else:
            self.direct_err.write(data)

    def take_last(self):
        data, self.last = self.last, b""
        return data


streams = Streams()


# ---- frames -----------------------------------------------------------------------------------


received = b""


def read_exactly(size):
    global received
    while len(received) < size:
        more = read(CTL, FRAME_MAX)
        if not more:
            os._exit(0)  # the agent is gone
        received += more
    data, received = received[:size], received[size:]
    return data


def read_frame():
    size, kind, _, _ = HEADER.unpack(read_exactly(HEADER.size))
    return kind, read_exactly(size)


def send_frame(kind, payload=b""):
    data = HEADER.pack(len(payload), kind, 0, 0) + payload
    while data:
        data = data[write(CTL, data) :]


def say_started(bash_group):
    """From here on SIGINT finds the user's code; 0 when it runs in this process."""
    write(STARTS, U32.pack(bash_group))


class Request:
    """One AGENT_EXEC; the agent has checked its layout."""

    def __init__(self, payload):
        self.payload = payload
        self.at = REQUEST.size
        self.language, _, self.code_size, _ = REQUEST.unpack_from(payload)
        self.cwd = self.text()
        self.env = [(self.text(), self.text()) for _ in range(self.number())]
        self.payload = None

    def number(self):
        (value,) = U32.unpack_from(self.payload, self.at)
        self.at += U32.size
        return value

    def text(self):
        size = self.number()
        self.at += size
        return self.payload[self.at - size : self.at]

    def read_code(self):
        """Give the code, or None when its sender left before the end."""
        parts = []
        missing = self.code_size
        while missing:
            _, part = read_frame()
            if not part:
                return None
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)


# ---- interrupts -------------------------------------------------------------------------------


def ignore_interrupt(number, frame):
    """SIGINT between calls: not SIG_IGN, which child processes would inherit."""


class Signals:
    """Handlers of the user's run in their calls only: in the driver's own code what one raises
    would end the process. Signals that came meanwhile are handled before the next call's code.
    """

    def __init__(self):
        self.mask = set()  # the user's; None while it is in force

    def hold(self):
        """What a handler raises may come out of it: called again, it still has the user's mask."""
        if self.mask is None:
            self.mask = pthread_sigmask(SIG_BLOCK, ())
        pthread_sigmask(SIG_BLOCK, HELD_SIGNALS)

    def hold_handled(self):
        """After the answer, for it takes a while: what has no handler does its work again."""
        handled = {number for number in ALL_SIGNALS if callable(getsignal(number))}
        pthread_sigmask(SIG_SETMASK, self.mask | handled - {SIGINT})

    def release(self):
        while True:
            try:
                if self.mask is not None:
                    pthread_sigmask(SIG_SETMASK, self.mask - {SIGINT})
                self.mask = None
                return
            except BaseException:
                pass  # what such a handler raised is of no call; there may be another


signals = Signals()


def interrupts_on():
    """Whatever earlier code did to SIGINT, this call can be interrupted."""
    signals.release()
    set_handler(SIGINT, default_int_handler)


def interrupts_off():
    """From here on no KeyboardInterrupt comes. One that is on its way is raised by this."""
    set_handler(SIGINT, ignore_interrupt)


def interrupt_again(pid, call):
    if sources.calls == call:
        kill(pid, SIGINT)


def on_unraisable(unraisable):
    """An interrupt may come in a callback whose exceptions Python drops, the import system's among
    them: it is sent again, from a thread, for this is such a callback too. What user code raises
    there by itself looks the same, and ends the call as well.
    """
    if unraisable.exc_type is KeyboardInterrupt and getsignal(SIGINT) is default_int_handler:
        try:
            start_new_thread(interrupt_again, (getpid(), sources.calls))
            return
        except RuntimeError:
            pass  # there can be no more threads
    sys.__unraisablehook__(unraisable)


# ---- Python -----------------------------------------------------------------------------------


class Source:
    """The text of one call as linecache has its files: size, time, lines, name. Few are ever looked
    at, so the lines are made when one is.
    """

    def __init__(self, name, text):
        self.name = name
        self.text = text
        self.entry = None

    def __len__(self):
        return 4

    def __getitem__(self, index):
        if self.entry is None:
            self.entry = (len(self.text), None, self.lines(), self.name)
        return self.entry[index]

    def lines(self):
        lines = io.StringIO(self.text, newline=None).readlines()
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        return lines


class Sources:
    """The source lines of calls, where the traceback, inspect and pdb modules look for them."""

    def __init__(self):
        self.calls = 0
        self.kept = []
        self.size = 0

    def new_name(self):
        self.calls += 1
        return "<call %d>" % self.calls

    def keep(self, name, text):
        linecache.cache[name] = Source(name, text)
        self.kept.append((name, len(text)))
        self.size += len(text)
        while self.size > SOURCES_MAX and len(self.kept) > 1:
            old, size = self.kept.pop(0)
            self.size -= size
            linecache.cache.pop(old, None)


sources = Sources()


def without_common_indentation(text):
    """Take away what all lines begin with; blank lines and comments don't count."""
    lines = text.splitlines(keepends=True)
    margin = None
    for line in lines:
        bare = line.lstrip(" \t")
        if not bare.strip() or bare.startswith("#"):
            continue
        indent = line[: len(line) - len(bare)]
        margin = indent if margin is None else os.path.commonprefix([margin, indent])
    if not margin:
        return text
    return "".join(line[len(margin) :] if line.startswith(margin) else line for line in lines)


def compile_source(source, name):
    try:
        text = str(source, "utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        text = None
    if text is None:
        return compile(source, name, "exec", dont_inherit=True)  # Python's own words for it
    sources.keep(name, text)
    try:
        return compile(text, name, "exec", dont_inherit=True)
    except SyntaxError:
        bare = without_common_indentation(text)
        if bare == text:
            raise
    sources.keep(name, bare)
    return compile(bare, name, "exec", dont_inherit=True)


def run_python(source):
    """Give the exit code. Any exception is the user's, from compiling or from running."""
    try:
        interrupts_on()
        say_started(0)
        exec(compile_source(source, sources.new_name()), main.__dict__)
        signals.hold()
        interrupts_off()
        return 0
    except BaseException as error:
        while True:
            try:
                signals.hold()
                interrupts_off()
                break
            except BaseException:
                pass  # one that was on its way
        return exit_code_of(error)


def exit_code_of(error):
    if not isinstance(error, SystemExit):
        print_exception(error)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    code = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code if -(2**31) <= code < 2**31 else 255
    try:
        streams.say("%s\n" % (code,))
    except BaseException:
        pass  # its __str__ is the user's
    return 1


def is_ours(code):
    return code.co_filename == __file__


def print_exception(error):
    tb = error.__traceback__
    while tb and is_ours(tb.tb_frame.f_code):
        tb = tb.tb_next
    try:
        if sys.excepthook is not sys.__excepthook__:
            sys.excepthook(type(error), error.with_traceback(tb), tb)
            return
    except BaseException:
        pass  # their hook is broken: print it in our way
    try:
        shown = traceback.TracebackException(type(error), error, tb, compact=True)
        hide_driver(shown, set())
        text = "".join(shown.format())
    except BaseException:  # memory, recursion, or a __str__ that raises
        text = "%s (and printing its traceback failed)\n" % type(error).__name__
    streams.say(text)


def hide_driver(shown, seen):
    """Take the driver's frames out of a traceback and of those it is chained to."""
    if shown is None or id(shown) in seen:
        return
    seen.add(id(shown))
    if shown.stack is not None:
        shown.stack[:] = [frame for frame in shown.stack if frame.filename != __file__]
        shown.stack = shown.stack or None
    for linked in (shown.__cause__, shown.__context__, *(getattr(shown, "exceptions", None) or ())):
        hide_driver(linked, seen)


# ---- bash -------------------------------------------------------------------------------------


def spawn_bash(code):
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, PIPE_OUT, 1),
        (os.POSIX_SPAWN_DUP2, PIPE_ERR, 2),
    ]
    arguments = ["bash", "-c", code]
    script = None
    if len(code) > ARGUMENT_MAX:
        script = script_file(code)
        actions.append((os.POSIX_SPAWN_DUP2, script, SCRIPT_FD))
        # Read before the descriptor is closed, and closed before any of it runs.
        arguments[2] = 'eval "$(</proc/self/fd/%d)" %d<&-' % (SCRIPT_FD, SCRIPT_FD)
    try:
        return posix_spawn(
            BASH,
            arguments,
            os.environ,
            file_actions=actions,
            setsid=True,
            setsigmask=[],
            setsigdef=ALL_SIGNALS,
        )
    finally:
        if script is not None:
            os.close(script)


def script_file(code):
    script = os.memfd_create("bash")
    view = memoryview(code)
    while view:
        view = view[write(script, view) :]
    return script


def run_bash(code):
    """Run code in a fresh bash and give its exit code; its background children are left alone."""
    if b"\0" in code:
        streams.say("bash: the code has a zero byte in it\n")
        return 2
    # A handler of the user's, or SIG_IGN, would take bash's exit code away from us.
    old = set_handler(SIGCHLD, SIG_DFL)
    try:
        streams.flush()
        pid = spawn_bash(code)
        say_started(pid)
        status = waitpid(pid, 0)[1]
    except OSError as error:
        streams.say("bash: %s\n" % error)
        return 126
    finally:
        set_handler(SIGCHLD, SIG_DFL if old is None else old)
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


# ---- calls ------------------------------------------------------------------------------------


def reason(error):
    return getattr(error, "strerror", None) or error


class Surroundings:
    """The folder and variables that were given for one call only."""

    def __init__(self, request):
        self.request = request
        self.folder = None
        self.env = []

    def enter(self):
        """Give what is wrong with them, or None."""
        for name, value in self.request.env:
            self.env.append((name, environb.get(name)))
            try:
                environb[name] = value
            except (OSError, ValueError) as error:  # a name with = in it
                return "set the variable %s: %s" % (os.fsdecode(name), reason(error))
        try:
            if self.request.cwd:
                self.folder = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                os.chdir(self.request.cwd)
        except OSError as error:
            return "enter the folder %s: %s" % (os.fsdecode(self.request.cwd), reason(error))
        return None

    def leave(self):
        for name, value in reversed(self.env):
            if value is not None:
                environb[name] = value
            else:
                environb.pop(name, None)
        if self.folder is not None:
            os.fchdir(self.folder)
            os.close(self.folder)


def run_call(request, code):
    around = Surroundings(request)
    wrong = around.enter()
    if wrong:
        streams.say("ramet: %s\n" % wrong)
        exit_code = 1
    elif request.language == PYTHON:
        exit_code = run_python(code)
    else:
        exit_code = run_bash(code)
    if getpid() == driver_pid:
        around.leave()
    return exit_code


def serve_exec(payload):
    request = Request(payload)
    code = request.read_code()
    if code is None:
        send_frame(EXIT, EXITED.pack(1, 0))
        return
    exit_code = run_call(request, code)
    sys.settrace(None)
    sys.setprofile(None)
    streams.flush()
    if getpid() != driver_pid:
        os._exit(exit_code & 0xFF)  # a child of os.fork() that came back from the user's code
    send_frame(EXIT, EXITED.pack(exit_code, 0) + streams.take_last())
    signals.hold_handled()
    streams.mend()


def serve_reseed(users_too):
    """Seed the generators that a restored image would share with its twins.

    OpenSSL's makes keys: no two may ever have the same. The user's own are part of the state that
    was asked for twice, so they are seeded only when that was asked for too.
    """
    name = "OpenSSL"
    try:
        openssl = getattr(sys.modules.get("_ssl"), "RAND_add", None)
        if openssl is not None:
            openssl(urandom(32), 32.0)
        for name in ("random", "numpy.random") if users_too else ():
            seed = getattr(sys.modules.get(name), "seed", None)
            if seed is not None:  # a module of the user's with such a name may have none
                seed()
    except Exception as error:
        text = ("seed %s: %s" % (name, error)).encode("utf-8", "replace")[:200]
        send_frame(ERROR, struct.pack("<II", 5, len(text)) + text)  # EIO
    else:
        send_frame(DONE)


def start():
    for fd in (CTL, PIPE_OUT, PIPE_ERR, STARTS):
        os.set_inheritable(fd, False)
    os.close(PROGRESS)
    interrupts_off()
    sys.unraisablehook = on_unraisable
    main.__builtins__ = builtins
    sys.modules["__main__"] = main
    sys.argv = [""]
    sys.path[0] = ""  # the current folder, as at a prompt
    streams.out = streams.err = None
    sys.stdout = sys.stderr = None
    streams.mend()


def serve():
    start()
    # A template's memory is shared until it is written: keep the collector off what is there now.
    gc.collect()
    gc.freeze()
    send_frame(PONG)
    while True:
        kind, payload = read_frame()
        if kind == EXEC:
            serve_exec(payload)
        elif kind == RESEED:
            serve_reseed(payload[0])


serve()
