"""What runs leave for readers, and what all of their pages share: the shell, the tables, numbers in words, files."""
