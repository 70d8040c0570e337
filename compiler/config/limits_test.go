package config

import "testing"

func TestApprovesOneDigest(t *testing.T) {
	t.Parallel()
	const digest = "sha256:9f3ac01b2d44f0a1"
	for approve, want := range map[string]bool{
		"9f3ac01b2d": true, "sha256:9f3ac01b2d": true, "9f3ac01b2d44f0a1": true,
		"": false, "9f3ac01b2e": false, "f3ac01b2d4": false, "9f3ac01b2d44f0a1ff": false,
	} {
		if got := (ShrinkGuard{Approve: approve}).Approves(digest); got != want {
			t.Errorf("approve %q: got %v, want %v", approve, got, want)
		}
	}
}
