"""What `suffice bench` compares `suffice` with; installed beside it, and never imported by it but on demand.

command   what `suffice bench` may be asked for, and the tables that it prints
grids     beside scikit-learn's grids, on data that ship with it
tools     beside its classes that tune by cross-validation, on a table of one's own
"""
