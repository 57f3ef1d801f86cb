"""What a policy would decide, told before anything is generated."""
