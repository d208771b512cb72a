"""FolderCase: a test case in an empty folder, which is removed after it."""
import os
import shutil
import tempfile
import unittest


class FolderCase(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="gaccd-fault-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)  # a guard may still write there

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())
        return self.path(name)
