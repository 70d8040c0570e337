package bootstrap

import (
	"os"
	"testing"
)

// asProgram has the test's own binary be the program.
const asProgram = "HAPSNAP_TEST_BOOTSTRAP"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(Main(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}
