package function

import (
	"testing"
)

func TestFieldAt(t *testing.T) {
	t.Parallel()
	const text = "kind: X\nspec:\n  rules:\n  - host: a\n    paths: [b, c]\n  - host: d\n  a.b/c: 1\n  none: {}\n"
	for at, want := range map[[2]int]string{
		{1, 1}:   "kind",
		{1, 7}:   "kind",
		{2, 1}:   "spec",
		{4, 11}:  "spec.rules[0].host",
		{5, 5}:   "spec.rules[0].paths",
		{5, 16}:  "spec.rules[0].paths[1]",
		{6, 5}:   "spec.rules[1].host",
		{7, 10}:  `spec["a.b/c"]`,
		{8, 3}:   "spec.none",
		{9, 1}:   "",
		{100, 1}: "",
	} {
		if got := fieldAt(text, at[0], at[1]); got != want {
			t.Errorf("%v: %q, want %q", at, got, want)
		}
	}
	if got := fieldAt("{", 1, 1); got != "" {
		t.Errorf("no YAML: %q", got)
	}
}
