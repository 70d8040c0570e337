package admission

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// Judge says what would come of an object. An error means that it cannot be
// told, and is best an [UnableError]. Its methods may be called by several goroutines.
//
// Who asked need not be somebody who may read Secrets, or objects of other namespaces:
// what a Judge says goes to them as it is.
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

// UnableError is why there is no verdict.
type UnableError struct {
	// Reason is for the API server and its user, Err for the log; Err may be nil.
	Reason string
	Err    error
	// Again says that there would be a verdict later: the API server has to ask again,
	// whatever the failure policy.
	Again bool
}

// Error returns what is for the log.
func (u *UnableError) Error() string {
	if u.Err == nil {
		return u.Reason
	}
	return u.Reason + ": " + u.Err.Error()
}

// Unwrap returns what is for the log alone.
func (u *UnableError) Unwrap() error { return u.Err }
