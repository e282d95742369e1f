"""Studies made with `suffice`, which know it from outside; installed beside it, and never imported by it but on demand.

command             what `suffice reproduce` may be asked for, and the folder of a study
study, claims       the paper's study on MNIST, and what it claims as numbers
figures, report     its five figures, and its page
imaging, imaging_claims, imaging_report      the same for denoising and for samples of Fourier transforms
progress            how far the runs of a study are
cleaning            data hypercleaning: a weight for every training sample (`benchmarks/hypercleaning.py`)
"""
