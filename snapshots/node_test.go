package snapshots

import "testing"

func TestSameNode(t *testing.T) {
	const node = "r000003-9f3ac01b2d_5f3c9a01"
	tests := map[string]struct {
		other string
		want  bool
	}{
		"the same":              {node, true},
		"another revision":      {"r000005-9f3ac01b2d_5f3c9a01", true},
		"another shape":         {"r000003-9f3ac01b2d_5f3c9a02", false},
		"other content":         {"r000003-9f3ac01b2e_5f3c9a01", false},
		"none of ours":          {"edge-1.example.com", false},
		"nothing":               {"", false},
		"not quite one of ours": {"r000003-9f3ac01b2d", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := SameNode(node, test.other); got != test.want {
				t.Errorf("SameNode(%q, %q) = %t", node, test.other, got)
			}
			if got := SameNode(test.other, node); got != test.want {
				t.Errorf("SameNode(%q, %q) = %t", test.other, node, got)
			}
		})
	}
	if !SameNode("bootstrap", "bootstrap") || SameNode("bootstrap", "other") {
		t.Error("names of other hands are compared as they are")
	}
}
