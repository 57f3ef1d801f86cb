"""Code on the far side of a sandbox's wall.

These modules import the standard library and each other, nothing of qualgate: inside, only this folder is there.
`values`, `remote` and `seccomp` serve our side too. Each sandbox imports them anew, so imports are few.
"""
