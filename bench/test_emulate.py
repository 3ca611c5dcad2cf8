"""What `emulate.py` makes of programs and of their last words; the emulator itself is not started."""

import io
import unittest
from contextlib import redirect_stdout

import emulate


class Emulator:
    def __init__(self, status):
        self.status = status

    def poll(self):
        return self.status


def followed(text, timeout=60):
    with redirect_stdout(io.StringIO()):
        return emulate.follow(io.StringIO(text), Emulator(0), timeout)


class Emulate(unittest.TestCase):
    def test_programs_run_in_order_with_their_arguments_and_environment(self):
        script = emulate.init_script([["/a", "x y"], ["/b"]], ["NAME=a b"])
        self.assertIn("export 'NAME=a b'\n/a 'x y' || status=$?\n/b || status=$?\n", script)

    def test_status_is_that_of_the_programs(self):
        self.assertEqual(followed("CPU: x\r\nEXIT 0\r\n"), 0)
        self.assertEqual(followed("test result: FAILED\r\nEXIT 101\r\n"), 101)

    def test_silence_is_a_failure(self):
        self.assertEqual(followed("running 3 tests\r\ntest a ..."), 125)
        self.assertEqual(followed("EXIT 0\r\n", timeout=0), 124)


if __name__ == "__main__":
    unittest.main()
