package conformance_test

import (
	"os"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
	"github.com/hapsnap/hapsnap/internal/testing/podtest"
)

// root is the folder of hapsnap, in which its tests find what they need.
const root = "../.."

var cluster kubetest.Shared

func TestMain(m *testing.M) {
	podtest.Shim()
	os.Exit(kubetest.Main(m, &cluster))
}
