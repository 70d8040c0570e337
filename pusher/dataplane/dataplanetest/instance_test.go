package dataplanetest

import (
	"testing"
	"time"
)

func TestAnInstanceIsUpQuickly(t *testing.T) {
	began := time.Now()
	i := Start(t, Options{})
	t.Log("up in", time.Since(began))
	if _, err := i.WorkerPID(); err != nil {
		t.Fatal(err)
	}
}
