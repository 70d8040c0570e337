package bind

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestServerWeights(t *testing.T) {
	for _, tt := range []struct {
		name   string
		shares []share
		want   []int
	}{
		{"one directive", []share{{100, 3}}, []int{1}},
		{"one directive, none ready", []share{{100, 0}}, []int{1}},
		{"weight 0 takes nothing", []share{{100, 1}, {0, 5}}, []int{1, 0}},
		{"all of weight 0", []share{{0, 1}, {0, 1}}, []int{0, 0}},
		{"equal weights, equal servers", []share{{100, 3}, {100, 3}}, []int{1, 1}},
		{"equal weights, unequal servers", []share{{100, 1}, {100, 3}}, []int{3, 1}},
		{"a canary of a tenth", []share{{90, 1}, {10, 1}}, []int{9, 1}},
		{"a canary of a tenth on one of ten", []share{{90, 9}, {10, 1}}, []int{1, 1}},
		{"a canary on several servers", []share{{90, 2}, {10, 3}}, []int{27, 2}},
		{"three directives", []share{{50, 1}, {30, 1}, {20, 1}}, []int{5, 3, 2}},
		{"one in a million is as near as it gets", []share{{999_999, 1}, {1, 1}}, []int{256, 1}},
		{"no endpoints leave their share to the others", []share{{90, 0}, {10, 2}, {10, 1}}, []int{18, 1, 2}},
		{"a spare among the empty weighs as an endpoint would", []share{{90, 0}, {10, 0}}, []int{9, 1}},
		{"empty and far heavier than the rest", []share{{1_000_000, 0}, {1, 1}}, []int{256, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := serverWeights(tt.shares); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// For all shares, weights are in HAProxy's range, the proportions are as near as whole numbers allow, and the
// order of the shares does not matter.
func TestServerWeightsHoldProportions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		shares := make([]share, 1+r.IntN(4))
		for i := range shares {
			shares[i] = share{r.IntN(101), r.IntN(20)}
		}
		weights := serverWeights(shares)
		for i, w := range weights {
			if w < 0 || w > 256 || (w == 0) != (shares[i].weight == 0) {
				t.Fatalf("%v: weight %d is %d", shares, i, w)
			}
		}
		if e := worstError(shares, weights); float64(e.num) > 0.02*float64(e.den)*float64(claimed(shares)) && ratio(shares) < 50 {
			t.Errorf("%v: weights %v are off by %d/%d", shares, weights, e.num, e.den)
		}
		slices.Reverse(shares)
		reversed := serverWeights(shares)
		slices.Reverse(reversed)
		if !slices.Equal(reversed, weights) {
			t.Errorf("%v: %v, but the other way round %v", shares, weights, reversed)
		}
	}
}

func claimed(shares []share) (sum int) {
	for _, s := range shares {
		if s.ready > 0 {
			sum += s.weight
		}
	}
	return sum
}

// ratio is how much more the heaviest server should weigh than the lightest.
func ratio(shares []share) float64 {
	least, most := 1e9, 0.0
	for _, s := range shares {
		if s.ready > 0 && s.weight > 0 {
			each := float64(s.weight) / float64(s.ready)
			least, most = min(least, each), max(most, each)
		}
	}
	return most / least
}
