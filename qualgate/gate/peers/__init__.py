"""Other projects' rules as plug-ins: what each would have said about the same outcomes. None decides anything here."""
