package render

import (
	"strings"
	"testing"

	"github.com/Masterminds/sprig/v3"
)

// A name that sprig does not know would be a function that is nil.
func TestHermeticFunctionsExist(t *testing.T) {
	t.Parallel()
	all := sprig.TxtFuncMap()
	for name := range strings.FieldsSeq(hermetic) {
		if all[name] == nil {
			t.Errorf("sprig has no function %s", name)
		}
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]Text{
		"*": "*:80", "10.0.0.1": "10.0.0.1:80", "::1": "[::1]:80", "::": "[::]:80 v4v6", "${POD_IP}": `"${POD_IP}:80"`,
	} {
		if got, err := listen(address, 80); got != want || err != nil {
			t.Errorf("listen %s = %s, %v, want %s", address, got, err, want)
		}
	}
}
