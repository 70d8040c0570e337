package fair_test

import (
	"testing"

	"github.com/hapsnap/hapsnap/internal/fair"
)

// Nobody loses anything if all fits, and all together never have more than there is.
func TestAllowance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sizes []int
		all   int
		want  int
	}{
		{nil, 10, 0},
		{[]int{3, 5, 2}, 10, 5},
		{[]int{3, 6, 2}, 10, 5},
		{[]int{100, 1, 90}, 21, 10},
		{[]int{1, 2, 100}, 50, 47},
		{[]int{1, 100, 100}, 51, 25},
		{[]int{100}, 10, 10},
		{[]int{10, 10, 10}, 9, 3},
	} {
		if got := fair.Allowance(c.sizes, c.all); got != c.want {
			t.Errorf("%v of %d: %d, want %d", c.sizes, c.all, got, c.want)
		}
		together := 0
		for _, size := range c.sizes {
			together += min(size, c.want)
		}
		if together > c.all {
			t.Errorf("%v of %d: together they have %d", c.sizes, c.all, together)
		}
	}
}
