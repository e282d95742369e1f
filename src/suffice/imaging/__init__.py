"""Images by smoothed total variation.

variation       the smooth term, its derivatives, and how far these can move
measurement     linear operators that measure an image: Fourier's, or any
newton_tv       Newton's method for it
"""
