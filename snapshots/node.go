package snapshots

import (
	"fmt"
	"strings"
)

// shapeDigits is how many hexadecimal digits of the shape a node carries.
const shapeDigits = 8

// nodeName returns the value of `node`: the snapshot and the shape.
func nodeName(id ID, shape Digest) string { return id.String() + "_" + shape.Short()[:shapeDigits] }

// ParseNode reads the `node` of a running worker: the snapshot that it runs, and
// the first 8 hexadecimal digits of the shape ([Bound].Shape) that it was loaded
// with. The error means that the worker does not run a snapshot.
func ParseNode(node string) (id ID, shape string, err error) {
	name, shape, ok := strings.Cut(node, "_")
	id, err = ParseID(name)
	if !ok || err != nil || len(shape) != shapeDigits || strings.Trim(shape, "0123456789abcdef") != "" {
		return ID{}, "", fmt.Errorf("node %q does not name a snapshot", node)
	}
	return id, shape, nil
}

// SameNode reports whether two nodes name the same content in the same shape,
// under whatever revisions: a worker of one need not be reloaded to run the other.
func SameNode(a, b string) bool {
	x, shapeX, errX := ParseNode(a)
	y, shapeY, errY := ParseNode(b)
	if errX != nil || errY != nil {
		return a == b
	}
	return x.Short == y.Short && shapeX == shapeY
}
