"""One spectrum of FILL_label."""


@analysis.output(regions="*")
def FILL_spectrum(FILL_reads, weight):
    axis = Hist.new.Reg(FILL_axis, name="FILL_quantity", label="FILL_label")
    return axis.Weight().fill(FILL_expression, weight=weight)
