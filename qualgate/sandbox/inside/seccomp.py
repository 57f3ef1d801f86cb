"""System calls that a candidate may not make, as a classic BPF program (seccomp(2)), for x86_64 and aarch64.

A deny list: computing, threads, files and pipes stay possible, whatever Python makes of them. Refused are other
processes' memory, namespaces and mounts, sockets, kernel keys, modules and tracing, memory outside the limits (memfd,
System V, larger buffers of sockets and pipes), locks on files (they take the kernel's memory, and one on a file that
others read tells them something), and every call newer than this list. A pair of sockets is allowed (event loops wake
themselves with one), as long as it is given no address and no owner: a datagram would go to any socket of the host's, a
signal to any process of the same user. Numbers: Linux 6.12's tables.
"""

from __future__ import annotations

import struct

_ARCHES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # AUDIT_ARCH, column below
_LAST = 462  # mseal; what came later gets ENOSYS
_X32 = 0x40000000

# name: (x86_64, aarch64); None where the architecture has no such call
_ALWAYS: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "move_mount": (429, 429), "open_tree": (428, 428), "mount_setattr": (442, 442),
    "statmount": (457, 457), "listmount": (458, 458),
    "bpf": (321, 280), "perf_event_open": (298, 241), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264),
    "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142), "syslog": (103, 116), "acct": (163, 89),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "adjtimex": (159, 171), "clock_adjtime": (305, 266), "sethostname": (170, 161), "setdomainname": (171, 162),
    "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None), "lookup_dcookie": (212, 18),
    "fanotify_init": (300, 262), "fanotify_mark": (301, 263), "vhangup": (153, 58), "personality": (135, 92),
    "socket": (41, 198), "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195),
    "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "accept": (43, 202), "accept4": (288, 242),
    "setsockopt": (54, 208), "flock": (73, 32), "landlock_create_ruleset": (444, 444),
    "sendmsg": (46, 211), "sendmmsg": (307, 269), "inotify_init": (253, None), "inotify_init1": (294, 26),
    "io_setup": (206, 0), "sync": (162, 81), "syncfs": (306, 267),
    "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),
    "semget": (64, 190), "semop": (65, 193), "semtimedop": (220, 192), "semctl": (66, 191),
    "mq_open": (240, 180), "mq_unlink": (241, 181), "memfd_create": (319, 279), "memfd_secret": (447, 447),
    "mbind": (237, 235), "set_mempolicy": (238, 237), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "uselib": (134, None), "ustat": (136, None), "sysfs": (139, None), "nfsservctl": (180, 42),
}  # fmt: skip
# Without namespaces, a process sees all others of its user: it stays one process, and changes nobody's.
_ALONE: dict[str, tuple[int | None, int | None]] = {
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "utimensat": (280, 88), "futimesat": (261, None),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "setpriority": (141, 140), "sched_setaffinity": (203, 122), "sched_setattr": (314, 274),
    "sched_setparam": (142, 118), "sched_setscheduler": (144, 119), "ioprio_set": (251, 30),
    "link": (86, None), "linkat": (265, 37), "symlink": (88, None), "symlinkat": (266, 36),
    "fallocate": (285, 47),
}  # fmt: skip
_CLONE, _CLONE3, _IOCTL, _PRCTL = (56, 220), (435, 435), (16, 29), (157, 167)
_SENDTO, _FCNTL = (44, 206), (72, 25)
_KILL, _TGKILL, _PRLIMIT = (62, 129), (234, 131), (302, 261)
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
_CLONE_THREAD = 0x10000
_IOCTLS = (0x5412, 0x541C, 0x5452, 0x8901, 0x8902)  # TIOCSTI, TIOCLINUX; FIOASYNC, FIOSETOWN, SIOCSPGRP
_LOCKS = (6, 7, 37, 38)  # F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW
_FCNTLS = (*_LOCKS, 8, 10, 15, 1024, 1026, 1031)  # F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY, F_SETPIPE_SZ
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4  # undumpable, its open files could not be looked at

_EPERM, _ENOSYS = 1, 38
_LOAD, _EQUAL, _ABOVE, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # ABOVE: greater or equal
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCH, _ARG0 = 0, 4, 16  # offsets in struct seccomp_data; an argument is 8 bytes, its low half first


def supported(machine: str) -> bool:
    """Return whether the machine's system call numbers are known here: x86_64 and aarch64."""
    return machine in _ARCHES


def program(machine: str, alone: int = 0) -> bytes:
    """Return the filter as the array of struct sock_filter that both bubblewrap and prctl take.

    alone: the pid of a process that shares its namespaces with others (tier B), else 0: it may make threads, no
    process, and signal or limit only itself.
    """
    arch, column = _ARCHES[machine]
    code: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, arch),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
        (_ABOVE, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_ABOVE, 0, 1, _LAST + 1),
        (_RETURN, 0, 0, _ERRNO | _ENOSYS),
    ]

    def refuse(number: int, error: int = _EPERM) -> None:
        code.extend([(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | error)])

    def look(calls: tuple[int, int], argument: int, tests: list[tuple[int, int, int, int]]) -> None:
        """For this call: `tests` on the low half of an argument; one that falls through allows."""
        body = [(_LOAD, 0, 0, _ARG0 + 8 * argument), *tests, (_RETURN, 0, 0, _ALLOW)]
        code.extend([(_EQUAL, 0, len(body), calls[column]), *body])

    denied = (_RETURN, 0, 0, _ERRNO | _EPERM)
    for numbers in (_ALWAYS | _ALONE if alone else _ALWAYS).values():
        number = numbers[column]
        if number is not None:
            refuse(number)
    refuse(_CLONE3[column], _ENOSYS)  # its flags lie in memory; the C library then takes clone
    tests = [(_ANY_BIT, 0, 1, _NEW_NAMESPACES), denied]
    look(_CLONE, 0, [*tests, (_ANY_BIT, 1, 0, _CLONE_THREAD), denied] if alone else tests)
    look(_IOCTL, 1, [line for what in _IOCTLS for line in ((_EQUAL, 0, 1, what), denied)])
    look(_FCNTL, 1, [line for what in _FCNTLS for line in ((_EQUAL, 0, 1, what), denied)])
    look(_SENDTO, 5, [(_EQUAL, 1, 0, 0), denied])  # the address's length
    if alone:
        look(_PRCTL, 0, [(_EQUAL, 1, 0, _PR_SET_PDEATHSIG), (_EQUAL, 0, 1, _PR_SET_DUMPABLE), denied])
        look(_KILL, 0, [(_EQUAL, 1, 0, alone), denied])
        look(_TGKILL, 0, [(_EQUAL, 1, 0, alone), denied])
        look(_PRLIMIT, 0, [(_EQUAL, 2, 0, alone), (_EQUAL, 1, 0, 0), denied])
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in code)
