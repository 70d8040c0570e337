package kubetest

import (
	"os"
	"testing"
)

var cluster Shared

func TestMain(m *testing.M) {
	if ran, code := runAsOrphanage(); ran {
		os.Exit(code)
	}
	os.Exit(Main(m, &cluster))
}
