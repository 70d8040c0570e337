package controller_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/controller/controllertest"
)

// Every stage of compiling and publishing is timed.
func TestRunTimesEachStage(t *testing.T) {
	t.Parallel()
	r := controllertest.Run(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s")})
	r.AwaitRoute(t, "web.example", true)
	controllertest.Await(t, "samples of the stages", func() error {
		families, err := r.Registry.Gather()
		if err != nil {
			return err
		}
		stages := map[string]uint64{}
		for _, f := range families {
			if f.GetName() != "hapsnap_compiler_stage_duration_seconds" {
				continue
			}
			for _, m := range f.GetMetric() {
				stages[m.GetLabel()[0].GetValue()] = m.GetHistogram().GetSampleCount()
			}
		}
		for _, stage := range []string{"read", "translate", "render", "validate", "draft", "publish"} {
			if stages[stage] == 0 {
				return fmt.Errorf("%s has none of %v", stage, stages)
			}
		}
		if len(stages) != 6 {
			return errors.New("there are other stages")
		}
		return nil
	})
}
