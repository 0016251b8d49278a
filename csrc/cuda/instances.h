/*
 * Every kernel by name: FGC_KERNEL(name, struct it is launched with, body). The device's code (kernels.cu), the
 * emulator's table (emulator.cc) and the names that plan.c makes up agree because this list is the only one.
 */
#define FGC_ROWS(suffix, element, columns)                                                                   \
  FGC_KERNEL(fg_sum_##suffix, fgc_aggregate, (aggregate<Sum<element, columns, false>>(a)))                    \
  FGC_KERNEL(fg_weighted_##suffix, fgc_aggregate, (aggregate<Sum<element, columns, true>>(a)))                \
  FGC_KERNEL(fg_extreme_##suffix, fgc_aggregate, (aggregate<Extreme<element, columns>>(a)))                   \
  FGC_KERNEL(fg_extreme_back_##suffix, fgc_aggregate, (aggregate<ExtremeBack<element, columns>>(a)))          \
  FGC_KERNEL(fg_dot_##suffix, fgc_aggregate, (dot<element, columns>(a)))

/* Columns of one load: as many as 16 bytes hold, two, one. */
FGC_ROWS(f32x4, F32, 4)
FGC_ROWS(f32x2, F32, 2)
FGC_ROWS(f32x1, F32, 1)
FGC_ROWS(f64x2, F64, 2)
FGC_ROWS(f64x1, F64, 1)
FGC_ROWS(f16x8, F16, 8)
FGC_ROWS(f16x2, F16, 2)
FGC_ROWS(f16x1, F16, 1)
FGC_ROWS(bf16x8, BF16, 8)
FGC_ROWS(bf16x2, BF16, 2)
FGC_ROWS(bf16x1, BF16, 1)
#undef FGC_ROWS

FGC_KERNEL(fg_attention_f32, fgc_attention, (attention<float, false>(a)))
FGC_KERNEL(fg_attention_f64, fgc_attention, (attention<double, false>(a)))
FGC_KERNEL(fg_attention_back_f32, fgc_attention, (attention<float, true>(a)))
FGC_KERNEL(fg_attention_back_f64, fgc_attention, (attention<double, true>(a)))

FGC_KERNEL(fg_sort_count, fgc_sort, (sort_count(a)))
FGC_KERNEL(fg_sort_place, fgc_sort, (sort_place(a)))
FGC_KERNEL(fg_scan, fgc_scan, (scan(a)))
FGC_KERNEL(fg_group_ptr, fgc_group, (group_ptr(a)))
FGC_KERNEL(fg_group_edges, fgc_group, (group_edges(a)))

FGC_KERNEL(fg_draw_count, fgc_draw, (draw_count(a)))
FGC_KERNEL(fg_draw_first, fgc_draw, (draw_first(a)))
FGC_KERNEL(fg_draw, fgc_draw, (draw(a)))
FGC_KERNEL(fg_draw_labor, fgc_draw, (draw_labor(a)))
FGC_KERNEL(fg_draw_weighted, fgc_draw, (draw_weighted(a)))

FGC_KERNEL(fg_map_clear, fgc_map, (map_clear(a)))
FGC_KERNEL(fg_map_insert, fgc_map, (map_insert(a)))
FGC_KERNEL(fg_map_count, fgc_map, (map_count(a)))
FGC_KERNEL(fg_map_number, fgc_map, (map_number(a)))
FGC_KERNEL(fg_map_local, fgc_map, (map_local(a)))

FGC_KERNEL(fg_gather_16, fgc_gather, (gather<16>(a)))
FGC_KERNEL(fg_gather_8, fgc_gather, (gather<8>(a)))
FGC_KERNEL(fg_gather_4, fgc_gather, (gather<4>(a)))
FGC_KERNEL(fg_gather_2, fgc_gather, (gather<2>(a)))
FGC_KERNEL(fg_gather_1, fgc_gather, (gather<1>(a)))
#undef FGC_KERNEL
