package compiler

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/routing"
)

// HoldAside takes the place in which large Ingresses and configurations are judged.
func HoldAside(j *Judge) (release func()) {
	j.slow <- struct{}{}
	return func() { <-j.slow }
}

// AskFor asks for ConfigMaps as reviews do.
func AskFor(shared Objects, names ...types.NamespacedName) {
	shared.(*sharedObjects).ask(routing.Asked{ConfigMaps: names})
}

// NewCrashes returns a memory of objects for which a compile panicked.
func NewCrashes() *crashes { return &crashes{} }

// KeysRead returns of how many Secrets the kind of the key was read.
func KeysRead(m Memories) int { return m.Keys.read }
