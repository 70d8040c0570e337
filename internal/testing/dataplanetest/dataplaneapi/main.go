// Command dataplaneapi is the double of the Dataplane API as a program, for tests of what
// starts one: dataplaneapi -f FILE.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
)

func main() {
	file := flag.String("f", "", "the API's file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := dataplanetest.Serve(ctx, *file, dataplanetest.API(cmp.Or(os.Getenv("HAPSNAP_TEST_API"), string(dataplanetest.V34))))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dataplaneapi:", err)
		os.Exit(1)
	}
}
