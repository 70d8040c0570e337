package testscripts

import (
	"errors"
	"io/fs"
	"os"

	"filippo.io/age"
	"github.com/rogpeppe/go-internal/testscript"
)

// addIdentity adds a new identity to a file, like age-keygen.
func addIdentity(_ *world, ts *testscript.TestScript, args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	before, err := os.ReadFile(ts.MkAbs(args[0]))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	made, err := age.GenerateX25519Identity()
	if err != nil {
		return err
	}
	ts.Setenv(args[1], made.Recipient().String())
	text := string(before) + "# public key: " + made.Recipient().String() + "\n" + made.String() + "\n"
	return replaceFile(ts.MkAbs(args[0]), []byte(text))
}
