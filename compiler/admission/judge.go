package admission

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// Judge says what would come of an object. An error means that it cannot be
// told. Its methods may be called by several goroutines.
type Judge interface {
	// Ingress judges an Ingress in the place of the one of its name.
	Ingress(ctx context.Context, ing *networkingv1.Ingress) (Verdict, error)
	// Configuration judges a CompilerConfig in the place of the one in use.
	Configuration(ctx context.Context, document []byte) (Verdict, error)
	// FailsClosed says whether what cannot be judged is denied.
	FailsClosed() bool
}

// Verdict is what was found. Without faults the object is allowed.
type Verdict struct {
	Faults   []diag.Diagnostic
	Warnings []diag.Diagnostic
}
