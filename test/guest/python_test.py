# SPDX-License-Identifier: Apache-2.0
"""Python calls: the environment of the code, its output, and its end."""

import os
import signal
import textwrap
import unittest

import harness
from harness import STDERR, STDOUT, AgentTest


def block(code):
    return textwrap.dedent(code).lstrip("\n")


class Namespace(AgentTest):
    def test_state_is_kept_from_call_to_call(self):
        self.run_python("import math\nx = math.factorial(5)\ndef f(): return x")
        self.assert_ends(self.run_python("print(f())"), out="120\n")

    def test_code_runs_as_main(self):
        code = (
            "import __main__\nkept = 1\n"
            "print(__name__, __main__.kept, __main__.__dict__ is globals())"
        )
        self.assert_ends(self.run_python(code), out="__main__ 1 True\n")

    def test_driver_is_invisible_to_code(self):
        code = (
            "import sys\n"
            "print(sys.argv, repr(sys.path[0]), [n for n in globals() if n[0] != '_'])"
        )
        self.assertIn("[''] '' ", self.run_python(code).out)
        self.assert_ends(self.run_python("print('CTL' in globals(), 'serve' in globals())"),
                         out="False False\n")

    def test_the_last_expression_is_not_echoed(self):
        self.assert_ends(self.run_python("1 + 1"))

    def test_empty_code_is_accepted(self):
        self.assert_ends(self.run_python(""))

    def test_future_imports_do_not_leak_between_driver_and_calls(self):
        self.run_python("from __future__ import annotations")
        self.assert_ends(self.run_python("def f(x: 1): pass\nprint(f.__annotations__)"),
                         out="{'x': 1}\n")

    def test_calls_that_prepare_a_template_do_not_count(self):
        agent = harness.Agent()
        self.addCleanup(agent.stop)
        client = agent.client()
        self.addCleanup(client.close)
        self.assert_ends(client.run("def f(): 1/0", flags=harness.PREPARES))
        self.assert_ends(client.bash("echo 2", flags=harness.PREPARES), out="2\n")
        self.assert_ends(client.run("print(1)", flags=harness.RICH | harness.PREPARES), out="1\n")
        result = client.run("f()")
        self.assertIn('File "<call 1>", line 1', result.err)
        self.assertIn('File "<preparation 1>", line 1, in f\n    def f(): 1/0', result.err)

    def test_classes_of_main_can_be_pickled(self):
        self.run_python("import pickle\nclass C: pass")
        self.assert_ends(self.run_python("print(type(pickle.loads(pickle.dumps(C()))) is C)"),
                         out="True\n")

    def test_source_of_a_previous_call_is_found(self):
        self.run_python("def g():\n    return 'here'")
        self.assert_ends(self.run_python("import inspect\nprint(inspect.getsource(g), end='')"),
                         out="def g():\n    return 'here'\n")

    def test_sources_are_files_to_linecache(self):
        self.run_python("first = 1\nraise ValueError")
        code = ("import linecache\nlinecache.checkcache()\n"
                "name = [name for name in linecache.cache if name.startswith('<call')][-2]\n"
                "size, time, lines, same = linecache.cache[name]\n"
                "print(size, time, lines, same == name, linecache.getline(name, 2), end='')")
        self.assert_ends(self.run_python(code), out=(
            "26 None ['first = 1\\n', 'raise ValueError\\n'] True raise ValueError\n"))

    def test_replaced_builtins_do_not_reach_the_driver(self):
        code = (
            "import builtins\n"
            "for n in ('len', 'isinstance', 'memoryview'): setattr(builtins, n, None)"
        )
        client = self.agent.client()
        self.addCleanup(client.close)
        self.assert_ends(client.run(code))
        self.assert_ends(client.run("print('on')"), out="on\n")
        client.run("import os\nos._exit(0)")  # a new interpreter for the other tests


class Sources(AgentTest):
    """Source is taken verbatim; its common indentation is removed only if it does not compile."""

    GOOD = (
        ("    print(1)\n    print(2)\n", "1\n2\n"),
        ("\tprint(1)\n\tprint(2)", "1\n2\n"),
        ("\n\n    if 1:\n        print(1)\n\n    print(2)\n", "1\n2\n"),
        ("# at the margin\n    print(1)\n", "1\n"),
        ("print('''\n    kept\n''')", "\n    kept\n\n"),
        ("    print('''\n    moved\n    ''')", "\nmoved\n\n"),
        ("if 1:\n    print(1)\n    # end", "1\n"),
        ("print(1)\r\nprint(2)\r\n", "1\n2\n"),
        ("\ufeffprint('bom')", "bom\n"),
        ("# -*- coding: latin-1 -*-\nprint('\u00e9')", "\u00e9\n"),
        ("print('\\x0c')\nprint('''\x0c''')", "\x0c\n\x0c\n"),
    )

    def test_verbatim_and_indented_code_compiles(self):
        for code, out in self.GOOD:
            with self.subTest(code=code):
                self.assert_ends(self.run_python(code), out=out)

    FAULTS = (
        ("1/0", 1, "1/0"),
        ("x = 1\n\n1/0", 3, "1/0"),
        ("    x = 1\n    1/0\n", 2, "1/0"),
        ("\n\n    if 1:\n        1/0\n", 4, "1/0"),
        ("s = '''\n\n'''\n1/0", 4, "1/0"),
        ("s = 'a\x0cb'\n\n1/0", 3, "1/0"),
        ("x = 1\r\n1/0\r\n", 2, "1/0"),
        ("x = 1\r1/0", 2, "1/0"),
    )

    def test_tracebacks_show_the_original_line(self):
        for code, line, shown in self.FAULTS:
            with self.subTest(code=code):
                result = self.run_python(code)
                self.assertEqual(result.code, 1)
                self.assertRegex(result.err, r'\ATraceback \(most recent call last\):\n'
                                             rf'  File "<call \d+>", line {line}, in <module>\n'
                                             rf'    {shown}\n[ ~^]*\n?ZeroDivisionError: ')

    SYNTAX = (
        ("x =", 1, "SyntaxError"),
        ("x = 1\n  y = 2", 2, "IndentationError"),
        ("    x = 1\n    y =\n", 2, "SyntaxError"),
        ("print('open", 1, "SyntaxError"),
        ("if 1:\nx", 2, "IndentationError"),
        (b"x = '\xff'", 1, "SyntaxError"),
    )

    def test_syntax_errors_have_the_line_and_no_traceback(self):
        for code, line, name in self.SYNTAX:
            with self.subTest(code=code):
                result = self.run_python(code)
                self.assertEqual((result.code, result.out, result.lost), (1, "", 0))
                self.assertIn(name, result.err)
                self.assertNotIn("Traceback", result.err)
                if isinstance(code, str):
                    self.assertIn(f", line {line}\n", result.err)

    def test_zero_byte_in_the_source_is_an_error(self):
        result = self.run_python("x = 1\0")
        self.assertEqual((result.code, result.lost), (1, 0))
        self.assertIn("null bytes", result.err)

    def test_ten_megabytes_of_code(self):
        code = "x = '" + "a" * 10_000_000 + "'\nprint(len(x))\n1/0"
        result = self.run_python(code)
        self.assertEqual((result.out, result.code), ("10000000\n", 1))
        self.assertIn("line 3", result.err)

    def test_code_nested_too_deeply_is_an_error(self):
        result = self.run_python("(" * 5000 + ")" * 5000)
        self.assertEqual((result.code, result.lost), (1, 0))


class Ends(AgentTest):
    EXITS = (
        ("raise SystemExit", 0, ""),
        ("import sys; sys.exit(None)", 0, ""),
        ("exit(0)", 0, ""),
        ("quit(7)", 7, ""),
        ("raise SystemExit(-1)", -1, ""),
        ("raise SystemExit(256)", 256, ""),
        ("raise SystemExit(True)", 1, ""),
        ("raise SystemExit(2**40)", 255, ""),
        ("raise SystemExit('enough')", 1, "enough\n"),
        ("raise SystemExit(('a', 1))", 1, "('a', 1)\n"),
        ("raise SystemExit(3.5)", 1, "3.5\n"),
        ("raise SystemExit(1, 2)", 1, "(1, 2)\n"),
    )

    def test_system_exit(self):
        for code, exit_code, err in self.EXITS:
            with self.subTest(code=code):
                self.assert_ends(self.run_python(code), exit_code, err=err)

    def test_system_exit_that_cannot_be_printed(self):
        code = block("""
            class Bad:
                def __str__(self): raise ValueError
            raise SystemExit(Bad())
        """)
        self.assert_ends(self.run_python(code), 1)

    def test_an_exception_through_functions_of_two_calls(self):
        self.run_python("def outer():\n    inner()")
        result = self.run_python("def inner():\n    return {}['no']\n\nouter()")
        frames = [line.strip() for line in result.err.splitlines() if "^" not in line]
        self.assertEqual([line for line in frames if not line.startswith("File")],
                         ["Traceback (most recent call last):", "outer()", "inner()",
                          "return {}['no']", "KeyError: 'no'"])

    def test_chained_exceptions_and_groups_have_no_frame_of_the_driver(self):
        code = block("""
            try:
                try:
                    1/0
                except ZeroDivisionError as e:
                    raise ValueError("second") from e
            except ValueError as e:
                kept = e
            raise ExceptionGroup("group", [kept, OSError(5, "io")])
        """)
        result = self.run_python(code)
        self.assertEqual(result.code, 1)
        for part in ("ZeroDivisionError", "second", "direct cause", "[Errno 5] io"):
            self.assertIn(part, result.err)
        self.assertNotIn("driver", result.err)

    def test_infinite_recursion_gives_a_short_traceback_and_keeps_the_state(self):
        result = self.run_python("def f(): f()\nf()")
        self.assertEqual((result.code, result.lost), (1, 0))
        self.assertIn("RecursionError", result.err)
        self.assertIn("more times", result.err)
        self.assert_ends(self.run_python("print('on')"), out="on\n")

    def test_memory_error(self):
        result = self.run_python("x = bytearray(1 << 60)")
        self.assertEqual((result.code, result.lost), (1, 0))
        self.assertIn("MemoryError", result.err)

    def test_memory_limit_is_survived(self):
        code = block("""
            import resource
            used = int(open('/proc/self/statm').read().split()[0]) * 4096
            resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
            hoard = []
            while True:
                hoard.append(bytearray(1 << 20))
        """)
        result = self.run_python(code)
        self.assertEqual((result.code, result.lost), (1, 0))
        self.assertIn("MemoryError", result.err)
        free = "hoard = 0\nresource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)"
        self.assert_ends(self.run_python(free))

    def test_exception_that_cannot_be_printed(self):
        code = block("""
            class Bad(Exception):
                def __str__(self): raise SystemExit(3)
            raise Bad
        """)
        result = self.run_python(code)
        self.assertEqual((result.code, result.lost), (1, 0))
        self.assertIn("Bad", result.err)

    def test_bare_base_exceptions(self):
        for code in ("raise GeneratorExit", "class B(BaseException): pass\nraise B"):
            result = self.run_python(code)
            self.assertEqual((result.code, result.lost), (1, 0))

    def test_huge_integers(self):
        result = self.run_python("x = 7 ** 400000\nprint(x)")
        self.assertEqual((result.code, result.lost), (1, 0))  # above Python's limit of 4,300 digits
        self.assert_ends(self.run_python("print(x.bit_length())"), out="1122942\n")

    def test_user_excepthook_prints_the_exception(self):
        hook = (
            "import sys\n"
            "sys.excepthook = lambda t, v, tb: print('hook', t.__name__, tb.tb_lineno)"
        )
        self.run_python(hook)
        self.assert_ends(self.run_python("\n1/0"), 1, out="hook ZeroDivisionError 2\n")
        self.run_python("sys.excepthook = None")
        self.assertIn("ZeroDivisionError", self.run_python("1/0").err)
        self.run_python("sys.excepthook = sys.__excepthook__")

    def test_trace_functions_end_with_their_call(self):
        self.run_python("import sys\ndef t(*a): raise ValueError\nsys.settrace(t)")
        self.assert_ends(self.run_python("print(sys.gettrace())"), out="None\n")


class Streams(AgentTest):
    def test_input_raises_eof_error(self):
        for _ in range(2):  # exit() closes sys.stdin, which must be open again in the next call
            result = self.run_python("input('name? ')")
            self.assertEqual((result.out, result.code), ("name? ", 1))
            self.assertIn("EOFError", result.err)
            self.run_python("exit()")
        self.assert_ends(self.run_python("import sys\nprint(repr(sys.stdin.read()))"), out="''\n")

    def test_text_that_is_not_proper_unicode_never_raises(self):
        result = self.run_python("print('a\\udcff\\ud800\\udc41b')")
        self.assertEqual(result.joined(STDOUT), b"a\xff\xed\xa0\x80\xed\xb1\x81b\n")
        self.assertEqual(result.code, 0)

    def test_bytes_are_not_changed(self):
        code = (
            "import sys\nsys.stdout.buffer.write(bytes(range(256)))\n"
            "sys.stderr.buffer.write(b'\\xff')"
        )
        result = self.run_python(code)
        self.assertEqual(result.joined(STDOUT), bytes(range(256)))
        self.assertEqual(result.joined(STDERR), b"\xff")

    def test_two_streams_keep_their_order(self):
        code = "import sys\nfor i in range(200):\n  print(i)\n  print(-i, file=sys.stderr)"
        self.assertEqual(self.run_python(code).order,
                         "".join(f"1:{i}\n2:{-i}\n" for i in range(200)))

    def test_order_within_a_line(self):
        code = "import sys\nsys.stdout.write('a'); sys.stderr.write('b'); print('c', end=''); 1/0"
        self.assertTrue(self.run_python(code).order.startswith("1:a2:b1:c2:Traceback"))

    # Prints so much that the agent leaves text in the pipe for some time.
    RUN = "for i in range(300): print('run')\n"

    def test_order_after_a_long_run_of_one_stream(self):
        code = "import sys\nfor n in range(30):\n  for i in range(n * 7): print(n, i)\n" \
               "  print(n, file=sys.stderr)\n  print(-n)\n  sys.stderr.write('e')"
        expected, last = "", None
        for n in range(30):
            parts = [("1:", f"{n} {i}\n") for i in range(n * 7)]
            for stream, text in (*parts, ("2:", f"{n}\n"), ("1:", f"{-n}\n"), ("2:", "e")):
                expected += text if stream == last else stream + text
                last = stream
        for _ in range(5):
            self.assertEqual(self.run_python(code).order, expected)

    def test_order_when_both_streams_alternate(self):
        code = "import sys\nfor turn in range(20):\n" \
               "  for i in range(200): print('o')\n  for i in range(200): print('e', file=sys.stderr)"
        self.assertEqual(self.run_python(code).order, ("1:" + "o\n" * 200 + "2:" + "e\n" * 200) * 20)

    WRITERS = (
        "os.write(1, b'WORD\\n')",
        "os.system('echo WORD')",
        "sys.stdout.buffer.write(b'WORD\\n')",
        "subprocess.run(['echo', 'WORD'])",
        "libc.puts(b'WORD')",
        "libc.printf(b'WORD\\n')",
        "print('WORD', flush=True)",
        "sys.stdout.write('WORD'); os.write(2, b''); sys.stdout.write('\\n')",
        "child('WORD')",
        "threaded('WORD')",
        "open(1, 'wb', buffering=0, closefd=False).write(b'WORD\\n')",
        "copy = os.dup(1); os.dup2(2, 1); os.dup2(copy, 1); print('WORD')",
    )

    def test_order_of_all_kinds_of_writes_after_a_run(self):
        code = block("""
            import ctypes, os, subprocess, sys, threading
            libc = ctypes.CDLL(None)
            def child(text):
                if os.fork() == 0:
                    print(text)
                    os._exit(0)
                os.wait()
            def threaded(text):
                t = threading.Thread(target=print, args=(text,))
                t.start()
                t.join()
        """)
        expected = ""
        for n, way in enumerate(self.WRITERS):
            code += self.RUN + way.replace("WORD", f"word{n}") + "\nprint('then')\n"
            expected += "run\n" * 300 + f"word{n}\nthen\n"
        self.assert_ends(self.run_python(code), out=expected)

    def test_faulthandler_output_follows_a_run(self):
        code = "import faulthandler, sys\n" + self.RUN.replace("'run'", "'run', file=sys.stderr")
        result = self.run_python(code + "faulthandler.dump_traceback()")
        self.assertTrue(result.err.startswith("run\n" * 300 + "Current thread"), result.err[-500:])

    def test_output_before_a_crash_is_complete(self):
        for crash, lost in (("os._exit(3)", 1), ("os.kill(os.getpid(), 9)", 1), ("os.abort()", 1),
                            ("import ctypes; ctypes.string_at(0)", 1), ("1/0", 0)):
            result = self.run_python("import os\n" + self.RUN + "print('end')\n" + crash)
            self.assertEqual((result.out, result.lost), ("run\n" * 300 + "end\n", lost), crash)

    def test_output_before_an_interrupt_is_complete(self):
        self.client.start("n = 0\nwhile True:\n  n += 1\n  print(n)")
        result = self.client.wait_for_output("\n3000\n")
        self.assertEqual(self.connect().interrupt(), (harness.DONE, b""))
        self.client.finish(result)
        self.assertEqual(result.code, 130)
        printed = [int(line) for line in result.out.split()]
        self.assertEqual(printed, list(range(1, len(printed) + 1)))
        self.assertIn(int(self.run_python("print(n)").out), (len(printed), len(printed) + 1))

    def test_line_after_a_run_arrives_while_the_code_runs(self):
        self.client.start(self.RUN + "print('waits')\nimport threading; threading.Event().wait()")
        result = self.client.wait_for_output("waits\n")
        self.assertEqual(self.connect().interrupt(), (harness.DONE, b""))
        self.assertEqual(self.client.finish(result).out, "run\n" * 300 + "waits\n")

    def test_partial_line_arrives_when_flushed(self):
        self.client.start("import sys, threading\n" + self.RUN + "sys.stdout.write('half')\n"
                          "sys.stdout.flush()\nthreading.Event().wait()")
        result = self.client.wait_for_output("half")
        self.assertEqual(self.connect().interrupt(), (harness.DONE, b""))
        self.assertEqual(self.client.finish(result).out, "run\n" * 300 + "half")

    def test_stderr_without_newline_arrives_at_once(self):
        self.client.start("import sys, threading\nsys.stderr.write('half')\n"
                          "threading.Event().wait()")
        result = self.client.wait_for_output("half")
        self.assertEqual(self.connect().interrupt(), (harness.DONE, b""))
        self.assertTrue(self.client.finish(result).err.startswith("half"))

    def test_output_at_exit_is_complete_and_comes_last(self):
        for size in 10, 32700, 32768, 200_000:
            out, err = "o" * 70_000 + "\n", "e" * 70_000 + "\n"
            code = "import sys, time\nprint('o' * 70_000)\ntime.sleep(0.001)\nsys.stderr.write('e' * 70_000 + '\\n')\n"
            result = self.run_python(code + f"sys.exit('x' * {size})")
            self.assert_ends(result, 1, out=out, err=err + "x" * size + "\n")
            self.assertEqual(result.order, f"1:{out}2:{err}" + "x" * size + "\n")
        self.assert_ends(self.run_python("print(1)"), out="1\n")

    def test_forked_child_that_fails_prints_its_traceback(self):
        code = "import os\nif os.fork() == 0: raise ValueError('of the child')\nos.wait()"
        result = self.run_python(code)
        self.assertEqual(result.code, 0)
        self.assertIn("ValueError: of the child", result.err)

    def test_order_is_kept_when_nobody_reads_for_a_while(self):
        code = (
            "import sys\nfor i in range(300):\n  print('o' * 3000)\n"
            "  print('e' * 3000, file=sys.stderr)"
        )
        self.client.start(code)
        other = self.connect()
        other.start("print('next')")  # queued while nobody reads the output of the first call
        result = self.client.finish()
        self.assertEqual(result.order, ("1:" + "o" * 3000 + "\n2:" + "e" * 3000 + "\n") * 300)
        self.assert_ends(other.finish(), out="next\n")

    def test_order_between_python_and_its_children(self):
        code = "import os, sys\n" + "\n".join(
            f"print('p{i}'); os.system('echo c{i} >&2'); print('q{i}', file=sys.stderr)"
            for i in range(5))
        self.assertEqual(self.run_python(code).order,
                         "".join(f"1:p{i}\n2:c{i}\nq{i}\n" for i in range(5)))

    def test_child_that_writes_forever_does_not_block_python(self):
        code = block("""
            import subprocess, sys
            p = subprocess.Popen(['yes'], stderr=sys.stdout, stdout=2)
            for i in range(200): print(i)
            p.kill(); p.wait()
        """)
        result = self.run_python(code)
        self.assertEqual((result.out.split(), result.code), ([str(i) for i in range(200)], 0))

    def test_order_of_binary_and_text_output(self):
        code = (
            "import os, sys\nprint('a'); sys.stdout.buffer.write(b'b\\n"
            "'); os.write(1, b'c\\n'); print('d')"
        )
        self.assert_ends(self.run_python(code), out="a\nb\nc\nd\n")

    def test_unflushed_output_belongs_to_its_call(self):
        self.assert_ends(self.run_python("print('no newline', end='')"), out="no newline")

    def test_unflushed_lines_belong_to_their_call(self):
        code = "import sys\nsys.stdout.reconfigure(line_buffering=False)\nprint('held')"
        self.assert_ends(self.run_python(code), out="held\n")
        code = "print('again')\nsys.stdout.reconfigure(line_buffering=True)"
        self.assert_ends(self.run_python(code), out="again\n")

    def test_output_of_c_code_is_not_delayed(self):
        code = "import ctypes\nctypes.CDLL(None).puts(b'from C')\nprint('from Python')"
        self.assert_ends(self.run_python(code), out="from C\nfrom Python\n")

    def test_streams_look_like_streams(self):
        code = block("""
            import sys
            for s in sys.stdin, sys.stdout, sys.stderr:
                print(s.fileno(), s.encoding, s.isatty(), s.name, s.mode, s.closed)
            print(sys.stdout is sys.__stdout__, sys.stdout.writable(), sys.stdout.line_buffering)
            sys.stdout.reconfigure(line_buffering=True)
        """)
        self.run_python("exit()")  # closes sys.stdin: the one that replaces it has the name 0
        self.assert_ends(self.run_python(code), out="0 utf-8 False 0 r False\n"
                         "1 utf-8 False <stdout> w False\n2 utf-8 False <stderr> w False\n"
                         "True True True\n")

    def test_closed_streams_are_opened_for_the_next_call(self):
        for code in ("import sys; sys.stdout.close(); sys.stderr.close()", "import os; os.close(1)",
                     "import os; os.close(0); os.close(1); os.close(2)",
                     "import sys; sys.stdout = None",
                     "import sys; sys.stdout.detach()", "import sys; del sys.stdout, sys.stderr",
                     "import os; os.closerange(0, 900)"):
            with self.subTest(code=code):
                self.assertEqual(self.run_python(code).lost, 0)
                result = self.run_python("import sys, os\nprint('back')\n"
                                         "os.system('echo child')\n1/0")
                self.assertEqual((result.out, result.code), ("back\nchild\n", 1))
                self.assertIn("ZeroDivisionError", result.err)

    def test_failing_print_is_an_error_of_the_call(self):
        result = self.run_python("import os\nos.close(1)\nprint('x')")
        self.assertEqual((result.code, result.lost), (1, 0))
        self.assertIn("Bad file descriptor", result.err)

    def test_replaced_streams_remain_as_in_an_interactive_session(self):
        self.run_python("import io, sys\nsys.stdout = box = io.StringIO()\nprint('boxed')")
        self.assert_ends(self.run_python("print('too')\nsys.stderr.write(box.getvalue())"),
                         err="boxed\ntoo\n")
        self.run_python("sys.stdout = sys.__stdout__")
        self.assert_ends(self.run_python("print('free')"), out="free\n")

    def test_failing_stream_of_the_user_does_no_harm(self):
        self.run_python("import sys\nclass S:\n  def flush(self): raise SystemExit(9)\n"
                        "sys.stdout = S()")
        self.assert_ends(self.run_python("sys.stdout = sys.__stdout__\nprint('on')"), out="on\n")

    def test_descriptor_1_may_be_redirected(self):
        code = (
            "import os\nsaved = os.dup(1)\nf = open('file', 'w+')\n"
            "os.dup2(f.fileno(), 1)\nprint('in file')\n1/0"
        )
        result = self.run_python(code)
        self.assertEqual((result.out, result.code), ("", 1))
        self.assertIn("ZeroDivisionError", result.err)
        self.assert_ends(self.run_python("os.dup2(saved, 1)\nprint(open('file').read())"),
                         out="in file\n\n")

    def test_child_may_make_the_pipe_non_blocking(self):
        code = "import os\nos.set_blocking(1, False)\nprint('x' * 1_000_000)"
        result = self.run_python(code)
        self.assertEqual((len(result.out), result.code), (1_000_001, 0))


class Processes(AgentTest):
    def test_output_of_children_is_captured(self):
        code = (
            "import subprocess\n"
            "subprocess.run(['sh', '-c', 'echo out; echo err >&2; cat'], check=True)"
        )
        self.assert_ends(self.run_python(code), out="out\n", err="err\n")

    def test_forked_child_that_returns_takes_no_calls(self):
        code = block("""
            import os
            pid = os.fork()
            if pid == 0:
                print('child')
                raise SystemExit(3)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """)
        self.assert_ends(self.run_python(code), out="child\n3\n")
        code = code.replace("raise SystemExit(3)", "1/0")
        result = self.run_python(code)
        self.assertEqual((result.out, result.code), ("child\n1\n", 0))
        self.assertEqual(result.err.count("ZeroDivisionError"), 1)
        self.assert_ends(self.run_python("print('one')"), out="one\n")

    def test_folder_of_a_returning_child_does_not_affect_the_parent(self):
        code = "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)"
        self.assert_ends(self.run_python(code, cwd="/", env=[("FORKED", "1")]))
        self.assert_ends(self.run_python("print('FORKED' in os.environ)"), out="False\n")

    def test_multiprocessing(self):
        code = block("""
            import multiprocessing
            def square(x): return x * x
            with multiprocessing.get_context('fork').Pool(2) as pool:
                print(pool.map(square, range(5)))
        """)
        self.assert_ends(self.run_python(code), out="[0, 1, 4, 9, 16]\n")

    def test_asyncio(self):
        code = block("""
            import asyncio
            async def main():
                p = await asyncio.create_subprocess_exec('echo', 'child')
                return await p.wait()
            print(asyncio.run(main()))
        """)
        self.assert_ends(self.run_python(code), out="child\n0\n")
        self.assert_ends(self.run_python(code), out="child\n0\n")

    def test_threads_continue_between_calls_without_blocking(self):
        code = block("""
            import threading
            go = threading.Event()
            def late():
                go.wait()
                for _ in range(100): print('x' * 9999)
            t = threading.Thread(target=late); t.start()
            print('started')
        """)
        self.assert_ends(self.run_python(code), out="started\n")
        # Output of the thread belongs to this call if it arrives before the call's end.
        result = self.run_python("go.set()\nt.join()\nprint('joined')")
        self.assertTrue(result.out.endswith("joined\n"))
        self.assertEqual(len(result.out), 1_000_000 + 7)

    def test_output_between_calls_is_dropped_without_blocking(self):
        code = block("""
            import os, subprocess
            gate, opened = os.pipe()
            done, say = os.pipe()
            code = f'read x <&{gate}; head -c 1000000 /dev/zero; echo >&{say}'
            p = subprocess.Popen(['bash', '-c', code], pass_fds=(gate, say))
            print(os.getpid(), opened, done)
        """)
        pid, opened, done = self.run_python(code).out.split()
        with open(f"/proc/{pid}/fd/{opened}", "w") as gate:
            gate.write("\n")
        with open(f"/proc/{pid}/fd/{done}") as waited:
            self.assertEqual(waited.readline(), "\n")
        self.assert_ends(self.run_python("p.wait()\nprint('quiet')"), out="quiet\n")

    def test_output_from_before_a_call_is_dropped_by_a_busy_agent(self):
        code = block("""
            import os, subprocess
            gate, opened = os.pipe()
            done, say = os.pipe()
            code = f'read x <&{gate}; echo early; echo early >&2; echo >&{say}'
            p = subprocess.Popen(['bash', '-c', code], pass_fds=(gate, say))
            print(os.getpid(), opened, done)
        """)
        pid, opened, done = self.run_python(code).out.split()
        # The agent learns of the call first, then of the output.
        self.agent.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.agent.process.pid, os.WSTOPPED)
        self.client.start("p.wait()\nprint('quiet')")
        with open(f"/proc/{pid}/fd/{opened}", "w") as gate:
            gate.write("\n")
        with open(f"/proc/{pid}/fd/{done}") as waited:
            self.assertEqual(waited.readline(), "\n")
        self.agent.process.send_signal(signal.SIGCONT)
        self.assert_ends(self.client.finish(), out="quiet\n")

    def test_descriptors_of_the_driver_are_not_inherited(self):
        code = "import subprocess\nsubprocess.run(['ls', '/proc/self/fd'], close_fds=False)"
        self.assertEqual(self.run_python(code).out.split()[:3], ["0", "1", "2"])
        self.assertNotIn("100", self.run_python(code).out)


class Signals(AgentTest):
    def test_signal_handler_that_raises_between_calls_does_no_harm(self):
        code = block("""
            import os, signal
            def handler(*a): raise TimeoutError
            for name in ('SIGALRM', 'SIGUSR1', 'SIGTERM'):
                signal.signal(getattr(signal, name), handler)
            print(os.getpid())
        """)
        pid = int(self.run_python(code).out)
        for number in (signal.SIGALRM, signal.SIGUSR1, signal.SIGTERM):
            os.kill(pid, number)
            self.assert_ends(self.run_python("print('on')"), out="on\n")
            os.kill(pid, number)
            self.assert_ends(self.run_bash(f"kill -{number} {pid}; echo on"), out="on\n")

    def test_handlers_run_in_later_calls(self):
        self.run_python("import os, signal\n"
                        "signal.signal(signal.SIGUSR1, lambda *a: print('caught'))")
        self.assert_ends(self.run_python("os.kill(os.getpid(), signal.SIGUSR1)"), out="caught\n")

    def test_signal_mask_of_the_user_is_kept(self):
        self.run_python("import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])")
        self.assert_ends(self.run_python("print(signal.pthread_sigmask(signal.SIG_BLOCK, []))"),
                         out="{<Signals.SIGUSR2: 12>}\n")


class Surroundings(AgentTest):
    def test_calls_start_at_home_and_keep_their_folder(self):
        self.assert_ends(self.run_python("import os\n"
                                         "print(os.getcwd())"), out=self.agent.home + "\n")
        self.run_python("os.mkdir('sub'); os.chdir('sub')")
        self.assert_ends(self.run_python("print(os.path.basename(os.getcwd()))"), out="sub\n")
        self.run_python("os.chdir('..')")

    def test_folder_and_variables_of_one_call(self):
        self.run_python("import os\nos.environ['KEPT'] = 'mine'")
        show = "import os\nprint(os.getcwd(), os.environ.get('KEPT'), os.environ.get('NEW'))"
        env = [("KEPT", "theirs"), ("NEW", "1"), ("NEW", "2")]
        self.assert_ends(self.run_python(show, cwd="/usr", env=env), out="/usr theirs 2\n")
        self.assert_ends(self.run_python(show), out=f"{self.agent.home} mine None\n")
        show = "echo $PWD $KEPT $NEW"
        self.assert_ends(self.run_bash(show, cwd="/usr", env=env), out="/usr theirs 2\n")
        self.assert_ends(self.run_bash(show), out=f"{self.agent.home} mine\n")

    def test_folder_and_variables_are_restored_after_every_end(self):
        show = "import os\nprint(os.getcwd(), os.environ.get('NEW'))"
        for code in ("1/0", "exit(1)", "import os; os.chdir('/'); del os.environ['NEW']"):
            self.run_python(code, cwd="/usr", env=[("NEW", "1")])
            self.assert_ends(self.run_python(show), out=f"{self.agent.home} None\n")

    def test_removed_folder_can_be_left_and_recreated(self):
        self.run_python("import os\nos.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')")
        self.assert_ends(self.run_python("print(os.getcwd())", cwd="/usr"), out="/usr\n")
        result = self.run_python("os.getcwd()")
        self.assertIn("FileNotFoundError", result.err)
        self.run_python(f"os.chdir({self.agent.home!r})")

    def test_invalid_folder_and_variables_are_named(self):
        for cwd, why in (("/no/such", "No such file or directory"), ("/bin/sh", "Not a directory"),
                         (b"/\xff", "No such file or directory")):
            shown = os.fsdecode(cwd)
            for run in (self.run_python, self.run_bash):
                result = run("pwd", cwd=cwd, env=[("NEW", "1")])
                self.assert_ends(result, 1, err=f"ramet: enter the folder {shown}: {why}\n")
        for name in ("A=B", "", "=A"):
            for run in (self.run_python, self.run_bash):
                result = run("1", env=[("NEW", "1"), (name, "1")])
                self.assertEqual((result.out, result.code, result.lost), ("", 1, 0))
                self.assertRegex(result.err, f"^ramet: set the variable {name}: [A-Za-z ]+\n$")
        self.assert_ends(self.run_python("import os\nprint(os.environ.get('NEW'))"), out="None\n")


if __name__ == "__main__":
    unittest.main()
