// Command hapsnap is what people type: the verbs of the compiler and of the pusher in one
// program. Under the name kubectl-hapsnap it is a plugin of kubectl.
//
// See `hapsnap --help`. What runs in pods is `compiler run` and `pusher run`.
package main

import (
	"os"
	_ "time/tzdata" // as for the pusher

	"github.com/hapsnap/hapsnap/hapsnap/cli"
	"github.com/hapsnap/hapsnap/internal/process"
)

func main() {
	root, args := cli.FromArgs(os.Args)
	root.SetArgs(args)
	os.Exit(process.Main(root))
}
