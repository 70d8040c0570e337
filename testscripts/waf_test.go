package testscripts

import (
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hapsnap/hapsnap/internal/testing/spoptest"
)

// changeAgent starts or stops an agent for which the word "attack" in a request is an attack.
func changeAgent(w *world, ts *testscript.TestScript, args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	path := filepath.Join(w.dir, args[1])
	switch args[0] {
	case "start":
		a := &spoptest.Agent{Network: "unix", Address: path, Answers: spoptest.LooksForAttacks}
		if err := a.Start(); err != nil {
			return err
		}
		if w.agents == nil {
			w.agents = map[string]*spoptest.Agent{}
		}
		w.agents[path] = a
		ts.Defer(a.Stop)
		return nil
	case "stop":
		if a := w.agents[path]; a != nil {
			a.Stop()
			return nil
		}
	}
	return errUsage
}
