"""Losses of `suffice.models.families` in ball arithmetic, as those of `tests.reference_balls`."""

from flint import arb

from tests.reference_balls import ZERO, total


class _Means:
    """A margin that is the logarithm of a mean. At the best b, sum_i a_i psi'(m_i + b) = 0."""

    def largest_shift(self, a, y, reach):
        mean = total(weight * count for weight, count in zip(a, y, strict=True)) / total(a)
        return 3 * (reach + mean.log().abs_upper() + self.extra())

    def extra(self):
        return ZERO


class Gamma(_Means):
    def value(self, m, y):
        return y * (-m).exp() + m

    def slope(self, m, y):
        return 1 - y * (-m).exp()

    def bend(self, m, y):
        return y * (-m).exp()

    def infimum(self, y):
        return 1 + y.log()


class Tweedie(_Means):
    def __init__(self, power):
        self.c, self.d = 2 - arb(power), arb(power) - 1

    def value(self, m, y):
        return (self.c * m).exp() / self.c + y * (-self.d * m).exp() / self.d

    def slope(self, m, y):
        return (self.c * m).exp() - y * (-self.d * m).exp()

    def bend(self, m, y):
        return self.c * (self.c * m).exp() + self.d * y * (-self.d * m).exp()

    def infimum(self, y):
        return self.value(y.log(), y) if y > 0 else ZERO


class NegativeBinomial(_Means):
    def __init__(self, theta):
        self.k = arb(1.0 / theta)

    @property
    def shift(self):
        return -self.k.log()

    def value(self, m, y):
        return (y + self.k) * (m + self.shift).exp().log1p() - y * m

    def slope(self, m, y):
        e = (m + self.shift).exp()
        return (self.k * e - y) / (1 + e)

    def bend(self, m, y):
        e = (m + self.shift).mid().exp()
        return (y + self.k) * e / ((1 + e) * (1 + e))

    def infimum(self, y):
        return self.value(y.log(), y) if y > 0 else ZERO

    def extra(self):
        return abs(self.shift) + 5


class Binomial:
    def value(self, m, y):
        return m.exp().log1p() - y * m

    def slope(self, m, y):
        return 1 / (1 + (-m).exp()) - y

    def bend(self, m, y):
        e = (-abs(m.mid())).exp()
        return e / ((1 + e) * (1 + e))

    def infimum(self, y):
        return ZERO

    def largest_shift(self, a, y, reach):
        share = total(weight * part for weight, part in zip(a, y, strict=True)) / total(a)
        return reach + (share / (1 - share)).log().abs_upper()


def family_of(loss):
    """The same loss in balls, or None."""
    match type(loss).__name__:
        case "Gamma":
            return Gamma()
        case "Tweedie":
            return Tweedie(loss.power)
        case "NegativeBinomial":
            return NegativeBinomial(loss.theta)
        case "Binomial":
            return Binomial()
    return None
