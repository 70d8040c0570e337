package snapshots

import (
	"testing"

	"github.com/haproxytech/client-native/v6/misc"
)

// The Dataplane API keeps the names that pass the check as they are.
func TestNamesSurviveTheDataplaneAPI(t *testing.T) {
	for _, name := range []string{"host.map", "Host_1-x.map", "https.crtlist", "shop_web-tls.pem"} {
		for _, kept := range []string{name, hashedName(name, []byte("x"))} {
			if got := misc.SanitizeFilename(kept); got != kept {
				t.Errorf("%s becomes %s", kept, got)
			}
		}
	}
	if got := hashedName("host.map", nil); got != "host-e3b0c442.map" {
		t.Errorf("an empty file is named %s", got)
	}
}
