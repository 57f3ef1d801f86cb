"""The filter, run by an interpreter of classic BPF written from the kernel's documentation."""

from __future__ import annotations

import struct

import pytest

from qualgate.sandbox.inside import seccomp

ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, ENOSYS = 0x00050001, 0x00050026
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def verdict(program: bytes, arch: int, number: int, *args: int) -> int:
    """What the kernel would return for this call: struct seccomp_data is nr, arch, instruction pointer, 6 arguments."""
    data = struct.pack("=IIQ6Q", number, arch, 0, *(*args, 0, 0, 0, 0, 0, 0)[:6])
    code = list(struct.iter_unpack("=HBBI", program))
    at, a = 0, 0
    for _ in range(len(code)):
        op, yes, no, k = code[at]
        at += 1
        if op == 0x20:  # BPF_LD | BPF_W | BPF_ABS
            a = struct.unpack_from("=I", data, k)[0]
        elif op == 0x06:  # BPF_RET | BPF_K
            return k
        else:
            assert op & 0x07 == 0x05, "only jumps are left"
            holds = {0x15: a == k, 0x35: a >= k, 0x25: a > k, 0x45: bool(a & k)}[op]
            at += yes if holds else no
    raise AssertionError("the program has no end")


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request):
    return request.param


def numbers(machine: str, x86: int, arm: int) -> int:
    return x86 if machine == "x86_64" else arm


def test_what_python_needs_is_allowed(machine):
    program = seccomp.program(machine)
    for x86, arm in ((0, 63), (1, 64), (9, 222), (202, 98), (257, 56), (231, 94), (59, 221), (318, 278), (53, 199)):
        assert verdict(program, ARCH[machine], numbers(machine, x86, arm)) == ALLOW


def test_what_leads_out_is_refused(machine):
    program = seccomp.program(machine)
    # ptrace, process_vm_readv, unshare, mount, bpf, keyctl, socket, memfd_create, userfaultfd, io_uring_setup
    for x86, arm in ((101, 117), (310, 270), (272, 97), (165, 40), (321, 280), (250, 219), (41, 198), (319, 279),
                     (323, 282), (425, 425)):  # fmt: skip
        assert verdict(program, ARCH[machine], numbers(machine, x86, arm)) == EPERM


def test_a_pair_of_sockets_has_neither_address_nor_owner(machine):
    program, arch = seccomp.program(machine), ARCH[machine]
    # connect, bind, listen, accept, accept4, sendmsg, sendmmsg
    for x86, arm in ((42, 203), (49, 200), (50, 201), (43, 202), (288, 242), (46, 211), (307, 269)):
        assert verdict(program, arch, numbers(machine, x86, arm)) == EPERM
    sendto, fcntl, ioctl = numbers(machine, 44, 206), numbers(machine, 72, 25), numbers(machine, 16, 29)
    assert [verdict(program, arch, sendto, 3, 0, 1, 0, 0, size) for size in (0, 2, 110)] == [ALLOW, EPERM, EPERM]
    assert {verdict(program, arch, fcntl, 3, what) for what in (8, 10, 15, 1024, 1026)} == {EPERM}
    assert {verdict(program, arch, fcntl, 3, what) for what in (1, 2, 3, 4, 1030, 1032)} == {ALLOW}
    assert {verdict(program, arch, ioctl, 3, what) for what in (0x5452, 0x8901, 0x8902)} == {EPERM}


def test_the_kernels_memory_is_taken_by_no_buffer_and_no_lock(machine):
    program, arch = seccomp.program(machine), ARCH[machine]
    # setsockopt, flock, landlock_create_ruleset
    for x86, arm in ((54, 208), (73, 32), (444, 444)):
        assert verdict(program, arch, numbers(machine, x86, arm)) == EPERM
    fcntl = numbers(machine, 72, 25)
    # F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW, F_SETPIPE_SZ; asking who holds one is no lock
    assert {verdict(program, arch, fcntl, 3, what) for what in (6, 7, 37, 38, 1031)} == {EPERM}
    assert {verdict(program, arch, fcntl, 3, what) for what in (5, 36)} == {ALLOW}


def test_what_all_users_of_the_host_share_is_left_alone(machine):
    program = seccomp.program(machine)
    # semctl, msgctl, io_setup, inotify_init1, sync, syncfs
    for x86, arm in ((66, 191), (71, 187), (206, 0), (294, 26), (162, 81), (306, 267)):
        assert verdict(program, ARCH[machine], numbers(machine, x86, arm)) == EPERM
    fallocate, prctl = numbers(machine, 285, 47), numbers(machine, 157, 167)
    alone = seccomp.program(machine, alone=77)
    assert [verdict(one, ARCH[machine], fallocate) for one in (program, alone)] == [ALLOW, EPERM]  # tier A has a cap
    assert [verdict(alone, ARCH[machine], prctl, what) for what in (1, 4, 15)] == [EPERM, EPERM, ALLOW]


def test_another_architecture_or_the_x32_table_kills_and_unknown_calls_do_not_exist(machine):
    program = seccomp.program(machine)
    assert verdict(program, 0x40000003, 1) == KILL  # 32-bit x86, whose numbers mean other calls
    assert verdict(program, ARCH[machine], 0x40000000 + 101) == KILL
    assert verdict(program, ARCH[machine], 463) == ENOSYS
    assert verdict(program, ARCH[machine], 435) == ENOSYS  # clone3 hides its flags; clone shows them


def test_clone_makes_no_namespace(machine):
    program, clone = seccomp.program(machine), numbers(machine, 56, 220)
    assert verdict(program, ARCH[machine], clone, 17) == ALLOW  # fork
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert verdict(program, ARCH[machine], clone, flag | 17) == EPERM


def test_a_process_that_shares_its_namespaces_makes_threads_only_and_signals_itself_only(machine):
    program, arch = seccomp.program(machine, alone=77), ARCH[machine]
    clone, kill, limit = numbers(machine, 56, 220), numbers(machine, 62, 129), numbers(machine, 302, 261)
    assert verdict(program, arch, clone, 0x3D0F00) == ALLOW  # what pthread_create asks for
    assert verdict(program, arch, clone, 17) == EPERM
    assert verdict(program, arch, numbers(machine, 59, 221)) == EPERM
    assert [verdict(program, arch, kill, pid) for pid in (77, 1, 2**32 - 1)] == [ALLOW, EPERM, EPERM]
    assert [verdict(program, arch, limit, pid) for pid in (0, 77, 1)] == [ALLOW, ALLOW, EPERM]


def test_no_terminal_input_is_forged(machine):
    program, ioctl = seccomp.program(machine), numbers(machine, 16, 29)
    assert [verdict(program, ARCH[machine], ioctl, 0, what) for what in (0x5412, 0x541C, 0x5401)] == [
        EPERM, EPERM, ALLOW,
    ]  # fmt: skip
