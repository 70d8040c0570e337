package bind

import (
	"math/bits"
	"slices"
)

// maxServerWeight is the greatest weight of a server in HAProxy.
const maxServerWeight = 256

// share is what one directive of a backend claims: a weight, for so many ready
// endpoints.
type share struct {
	weight, ready int
}

// servers returns among how many servers the weight is divided. Where no
// endpoint is ready, it is what one would get.
func (s share) servers() uint64 { return uint64(max(s.ready, 1)) }

// serverWeights returns the weight of each server of each share, so that the
// weights of all ready servers of a share add up to its part of the whole. A
// share of weight 0 gets 0, any other at least 1, and a share without ready
// servers leaves its part to the others. HAProxy's weights are whole numbers up
// to 256: of all scales the one with the smallest error is taken, and of equal
// ones the smallest, so that proportions that can be met exactly are.
func serverWeights(shares []share) []int {
	if !slices.ContainsFunc(shares, share.counts) {
		shares = slices.Clone(shares)
		for i := range shares {
			shares[i].ready = 1
		}
	}
	heaviest := heaviestServer(shares)
	if heaviest.weight == 0 {
		return make([]int, len(shares))
	}
	best := scaled(shares, heaviest, 1)
	least := worstError(shares, best)
	for scale := 2; scale <= maxServerWeight && least.num > 0; scale++ {
		weights := scaled(shares, heaviest, scale)
		if e := worstError(shares, weights); e.less(least) {
			best, least = weights, e
		}
	}
	return best
}

// heaviestServer returns the share whose single ready server weighs most, or
// one of weight 0 if none weighs anything.
func heaviestServer(shares []share) share {
	var best share
	for _, s := range shares {
		if s.counts() && uint64(s.weight)*best.servers() > uint64(best.weight)*s.servers() {
			best = s
		}
	}
	return best
}

// counts reports whether the share takes part in the whole.
func (s share) counts() bool { return s.weight > 0 && s.ready > 0 }

// scaled returns the weights when a server of the heaviest share weighs scale.
func scaled(shares []share, heaviest share, scale int) []int {
	out := make([]int, len(shares))
	for i, s := range shares {
		if s.weight == 0 {
			continue
		}
		num := uint64(scale) * uint64(s.weight) * heaviest.servers()
		den := s.servers() * uint64(heaviest.weight)
		out[i] = int(min(max((2*num+den)/(2*den), 1), maxServerWeight))
	}
	return out
}

// worstError returns how far the worst share is from what it claims, as a part
// of the whole; every result for the same shares is in the same unit.
func worstError(shares []share, weights []int) fraction {
	var claimed, given uint64
	for i, s := range shares {
		if s.ready > 0 {
			claimed += uint64(s.weight)
			given += uint64(s.ready) * uint64(weights[i])
		}
	}
	worst := fraction{0, max(given, 1)}
	for i, s := range shares {
		if s.ready > 0 {
			got, want := uint64(s.ready)*uint64(weights[i])*claimed, uint64(s.weight)*given
			worst.num = max(worst.num, max(got, want)-min(got, want))
		}
	}
	return worst
}

// fraction is compared exactly, so that no processor's way of rounding decides
// a weight.
type fraction struct {
	num, den uint64
}

func (f fraction) less(o fraction) bool {
	fh, fl := bits.Mul64(f.num, o.den)
	oh, ol := bits.Mul64(o.num, f.den)
	return fh < oh || (fh == oh && fl < ol)
}
