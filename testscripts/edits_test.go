package testscripts

import (
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// editConfig edits a file that a rollout may be replacing. It writes back an edit of exactly what it read.
func editConfig(w *world, _ *testscript.TestScript, args []string) error {
	if len(args) != 3 {
		return errUsage
	}
	i, err := w.instance(args[0])
	if err != nil {
		return err
	}
	text, err := i.Config()
	if err != nil {
		return err
	}
	if !strings.Contains(text, args[1]) {
		return fmt.Errorf("haproxy.cfg of %s does not hold %q:\n%s", args[0], args[1], text)
	}
	return i.EditConfig(strings.ReplaceAll(text, args[1], args[2]))
}

func reloadByHand(w *world, _ *testscript.TestScript, args []string) error {
	i, err := w.one(args)
	if err != nil {
		return err
	}
	if said, err := i.ReloadHAProxy(); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	return nil
}

func restartByHand(w *world, _ *testscript.TestScript, args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	i, err := w.instance(args[0])
	if err != nil {
		return err
	}
	switch args[1] {
	case "haproxy":
		return i.RestartHAProxy()
	case "api":
		return i.Restart()
	}
	return errUsage
}
