package podtest

import "testing"

func TestExpand(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"--at=$(IP):1": "--at=10.245.0.7:1", "$(IP)$(IP)": "10.245.0.710.245.0.7", "$$(IP)": "$(IP)", "$(NONE)": "$(NONE)", "$IP": "$IP", "plain": "plain",
	} {
		if got := expand(word, []string{"IP=10.0.0.1", "IP=10.245.0.7", "IPS=none"}); got != want {
			t.Errorf("%s: %s, want %s", word, got, want)
		}
	}
}
