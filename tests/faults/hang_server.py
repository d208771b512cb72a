#!/usr/bin/env python3
"""A folder whose file server can be stopped: FUSE, one thread, everything is done in another folder.

Usage: hang_server.py FOLDER MOUNT_POINT   (needs root, /dev/fuse and Debian's python3-fusepy)

While this process is stopped (SIGSTOP) a process that reads MOUNT_POINT waits; FOLDER can be read. It
ends when the mount point is unmounted.
"""

import os
import sys

sys.path.append("/usr/lib/python3/dist-packages")  # also for a Python that is not Debian's
import fusepy


class Server(fusepy.Operations):
    use_ns = True
    flush = None  # a file can be closed while the server is stopped

    def __init__(self, folder):
        self.folder = folder

    def at(self, path):
        return self.folder + path

    def getattr(self, path, fh=None):
        info = os.lstat(self.at(path))
        return {"st_mode": info.st_mode, "st_nlink": info.st_nlink, "st_size": info.st_size,
                "st_uid": info.st_uid, "st_gid": info.st_gid, "st_atime": info.st_atime_ns,
                "st_mtime": info.st_mtime_ns, "st_ctime": info.st_ctime_ns}

    def readdir(self, path, fh):
        return [".", "..", *os.listdir(self.at(path))]

    def readlink(self, path):
        return os.readlink(self.at(path))

    def statfs(self, path):
        info = os.statvfs(self.at(path))
        return {key: getattr(info, key) for key in ("f_bavail", "f_bfree", "f_blocks", "f_bsize",
                                                    "f_favail", "f_ffree", "f_files", "f_frsize")}

    def mkdir(self, path, mode):
        os.mkdir(self.at(path), mode)

    def rmdir(self, path):
        os.rmdir(self.at(path))

    def unlink(self, path):
        os.unlink(self.at(path))

    def symlink(self, path, target):
        os.symlink(target, self.at(path))

    def link(self, path, target):
        os.link(self.at(target), self.at(path))

    def rename(self, old, new):
        os.rename(self.at(old), self.at(new))

    def chmod(self, path, mode):
        os.chmod(self.at(path), mode)

    def chown(self, path, uid, gid):
        os.lchown(self.at(path), uid, gid)

    def utimens(self, path, times=None):
        os.utime(self.at(path), ns=times)

    def open(self, path, flags):
        return os.open(self.at(path), flags & ~os.O_APPEND)  # the kernel gives the offset

    def create(self, path, mode, fi=None):
        return os.open(self.at(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)

    def read(self, path, size, offset, fh):
        return os.pread(fh, size, offset)

    def write(self, path, data, offset, fh):
        return os.pwrite(fh, data, offset)

    def truncate(self, path, length, fh=None):
        os.truncate(self.at(path), length)

    def release(self, path, fh):
        os.close(fh)


if __name__ == "__main__":
    fusepy.FUSE(Server(sys.argv[1]), sys.argv[2], foreground=True, nothreads=True)
