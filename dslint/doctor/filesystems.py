"""Kinds of file systems: whose files every process that holds them is on this machine, and whose are not."""

from __future__ import annotations

# Mounted by one machine at a time: a file that is open is open here.
LOCAL = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "reiserfs", "bcachefs", "tmpfs", "ramfs", "overlay"}
)
# Several machines can mount them at the same time.
NETWORK = frozenset(
    {"nfs", "nfs3", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "beegfs_nodev", "ceph", "glusterfs",
     "afs", "orangefs", "pvfs2", "panfs", "wekafs", "gfs2", "ocfs2", "9p", "virtiofs", "vboxsf", "vmhgfs", "acfs",
     "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.s3fs", "fuse.gcsfuse", "fuse.juicefs",
     "fuse.rclone", "fuse.mfs", "fuse.goofys", "fuse.blobfuse", "fuse.blobfuse2", "fuse.beegfs", "fuse.lustre",
     "fuse.mount-s3", "fuse.geesefs", "fuse.JuiceFS", "fuse.JuiceFS:jfs"}
)  # fmt: skip


def is_network(kind: str) -> bool:
    """Whether several machines can hold this kind of file system at the same time."""
    return kind in NETWORK or kind.startswith("fuse.JuiceFS:")
